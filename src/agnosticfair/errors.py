"""What can go wrong, in sentences a person can act on. Imports nothing."""


class AgnosticFairError(Exception):
    """Base of every error this package raises on purpose: one sentence, the value and the remedy."""


class DataError(AgnosticFairError, ValueError):
    """A file, column, label, group or row that cannot be used."""


class SettingsError(AgnosticFairError, ValueError):
    """A setting, method or bound that makes no sense."""


class FederationError(AgnosticFairError):
    """A client failed, was silent, or sent a reply that does not fit the question."""


class SolverError(AgnosticFairError):
    """A fit that diverged, or that did not converge where the caller asked for an error."""


class ModelError(AgnosticFairError):
    """A model file that is corrupt, foreign, or does not fit the data."""
