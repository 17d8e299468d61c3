"""Flower's Fleet API as a site needs it: the only place that knows how Flower 1.41 packs a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore.inflatable import inflatable_protobuf_utils as transfer
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from agnosticfair.errors import FederationError

BEAT = 10.0
"""Seconds that a heartbeat is good for; Flower takes no less. A silent site is missed after twice that."""


@dataclass(frozen=True)
class WireRequest:
    """What the server asks in a run: a step, its content in the wire form, and the round."""

    run: int
    step: str
    content: bytes
    round: str
    message: Any = field(repr=False, default=None)


@dataclass
class Fleet:
    """An open connection to the SuperLink's fleet side, signed with the site's key."""

    client: Any
    public_key: bytes
    node: Any = None

    @classmethod
    def to(cls, address: str, tls_authority: str, key: Any) -> Self:
        """A connection that trusts this TLS authority only."""
        public = key.public_key()
        signing: list[Any] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, public),
        ]
        client = FleetHttpClient.from_server_address(
            address, False, tls_authority.encode(), signing
        )
        return cls(client, public_key_to_bytes(public))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def activate(self) -> None:
        """Say that the site is there; an error unless its key is registered."""
        call = ActivateNodeRequest(public_key=self.public_key, heartbeat_interval=BEAT)
        self.node = Node(node_id=self.client.ActivateNode(call).node_id)

    def beat(self) -> None:
        """Say that the site is still there."""
        call = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=BEAT)
        if not self.client.SendNodeHeartbeat(call).success:
            raise FederationError("the SuperLink does not know this node")

    def leave(self) -> None:
        """Say that the site goes."""
        self.client.DeactivateNode(DeactivateNodeRequest(node_id=self.node.node_id))

    def pull(self) -> WireRequest | None:
        """The next request, if there is one."""
        pulled = self.client.PullMessages(PullMessagesRequest(node=self.node))
        if not pulled.messages_list:
            return None
        run, tree = pulled.messages_list[0].metadata.run_id, pulled.message_object_trees[0]
        message = pull_and_inflate_object_from_tree(
            tree,
            transfer.make_pull_object_fn_protobuf(self.client.PullObject, self.node, run),
            transfer.make_confirm_message_received_fn_protobuf(
                self.client.ConfirmMessageReceived, self.node, run
            ),
            return_type=Message,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id
        fields = dict(message.content.config_records.get("request", {}))
        content = fields.get("content")
        content = content if isinstance(content, bytes) else b"?"
        return WireRequest(
            run, str(fields.get("step", "?")), content, str(message.metadata.group_id), message
        )

    def app_of(self, run: int) -> str:
        """The hash of a run's app."""
        return str(self.client.GetRun(GetRunRequest(node=self.node, run_id=run)).run.fab_hash)

    def push(self, request: WireRequest, answer_record: dict[str, Any], seconds: float) -> bool:
        """Send an answer; whether it was taken, for the run may have ended."""
        answer = RecordDict({"answer": ConfigRecord(answer_record)})
        message = Message(answer, reply_to=request.message)
        message.metadata.__dict__["_message_id"] = message.object_id
        try:
            with no_object_id_recompute():
                call = PushMessagesRequest(
                    node=self.node,
                    messages_list=[message_to_proto(remove_content_from_message(message))],
                    message_object_trees=[get_object_tree(message)],
                    clientapp_runtime_list=[seconds],
                )
                wanted = self.client.PushMessages(call)
                push_objects(
                    get_all_nested_objects(message),
                    transfer.make_push_object_fn_protobuf(
                        self.client.PushObject, self.node, request.run, wanted.session_id
                    ),
                    object_ids_to_push={*wanted.objects_to_push},
                )
        except httpx.HTTPStatusError as error:
            if error.response.status_code in (401, 502, 503, 504):
                raise
            return False
        return True
