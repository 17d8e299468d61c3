"""Where a data set's file is: in this package, in a folder, in the cache, or downloaded to it once."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from agnosticfair.errors import DataError

SHIPPED = Path(__file__).parent / "files"
VARIABLE = "AGNOSTICFAIR_DATA"
SURVEY = "https://raw.githubusercontent.com/tailequy/fairness_dataset/abb5a18b822ba56a221c5311082e192e85000b95"
"""Files of T. Le Quy et al., A survey on datasets for fairness-aware machine learning, 2022."""


@dataclass(frozen=True)
class Source:
    """A file that is not ours to ship.

    folder: the subfolder that may hold it.  file, sha256: as it is at ``url``.  others: the names and
    SHA-256 of files with the same rows and fewer columns.  download: False where ``url`` is a page about the data,
    so that the file must be put in a folder by hand.
    """

    folder: str
    file: str
    sha256: str
    url: str
    others: tuple[tuple[str, str], ...] = ()
    download: bool = True

    @property
    def known(self) -> dict[str, str]:
        """File name -> SHA-256 of every form that is accepted."""
        return {self.file: self.sha256, **dict(self.others)}


def find(source: Source, folder: str | Path) -> Path | None:
    """The data file in this folder or in its subfolder, if there is one.

    >>> find(Source("dutch", "dutch.arff", "0e7e", "https://example.org"), "no such folder") is None
    True
    """
    places = [
        place / name
        for name in source.known
        for place in (Path(folder), Path(folder, source.folder))
    ]
    return next((place.resolve() for place in places if place.is_file()), None)


def locate(source: Source, folder: str | Path | None = None) -> Path:
    """The file in ``folder``, else in $AGNOSTICFAIR_DATA, else in the user's cache folder, else
    downloaded to it."""
    named = folder or os.environ.get(VARIABLE)
    if not named:
        return find(source, cache_folder()) or _download(source, cache_folder())
    path = find(source, named)
    if path is None:
        which = "the folder named" if folder else f"the folder in ${VARIABLE}"
        verb = "download it there" if source.download else "make it"
        raise DataError(f"no {source.file} in {str(named)!r}, {which}: {verb} from {source.url}")
    return path


def content(source: Source, path: Path) -> bytes:
    """What is in a file found, which must have a known SHA-256 whatever its place."""
    try:
        body = path.read_bytes()
    except OSError as problem:
        raise DataError(f"cannot read {str(path)!r}: {problem.strerror}") from None
    digest, known = hashlib.sha256(body).hexdigest(), source.known[path.name]
    if digest != known:
        raise DataError(
            f"{str(path)!r} is not the known file: its SHA-256 is {digest[:12]}…, not "
            f"{known[:12]}…; delete it and download it again from {source.url}"
        )
    return body


def cache_folder() -> Path:
    """Where a download is kept."""
    import pooch

    return Path(pooch.os_cache("agnosticfair"))


def _download(source: Source, folder: Path) -> Path:
    if not source.download:
        raise DataError(
            f"{source.file} cannot be downloaded: make it from {source.url}, save it in a folder and name that "
            f"folder in ${VARIABLE}"
        )
    import pooch

    known = f"sha256:{source.sha256}"
    try:
        return Path(pooch.retrieve(source.url, known_hash=known, fname=source.file, path=folder))
    except (OSError, ValueError) as problem:  # requests' errors are OSErrors, a wrong hash is not
        why = "came altered" if isinstance(problem, ValueError) else "failed"
        raise DataError(
            f"the download of {source.url} {why}: try again later, or save the file yourself in a "
            f"folder and name that folder in ${VARIABLE}"
        ) from problem
