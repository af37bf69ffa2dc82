"""Every error that Kinfolk raises on purpose, by whose fault it is.

KinfolkError
|- OperatorError        the person's input or machine: one line and exit code 2
|  |- ConfigError       an option or a file of options
|  |- DataError         a shard, a data set, a folder of shards
|  |- ModelError        a model that cannot be used
|  |- AddressError      an address that cannot be bound or reached
|  |- KeyFileError      a key or token file that cannot be trusted
|  `- RefusedError      the coordinator or the run said no
|- LayoutError          two points of parameter space that do not fit together
|- LocalProtocolError   we were about to break the protocol: our bug
|- RemoteProtocolError  they broke it: drop the link and live on
`- TransportClosedError the transport was closed under the caller
"""

__all__ = [
    "AddressError",
    "ConfigError",
    "DataError",
    "KeyFileError",
    "KinfolkError",
    "LayoutError",
    "LocalProtocolError",
    "ModelError",
    "OperatorError",
    "RefusedError",
    "RemoteProtocolError",
    "TransportClosedError",
]


class KinfolkError(Exception):
    """The root: nothing else is raised on purpose."""


class OperatorError(KinfolkError):
    """A person must change something: shown as one line, exit code 2.

    The text says what was seen and what was allowed; `hint` says what to do.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} - {self.hint}" if self.hint else message


class ConfigError(OperatorError):
    """An option, or a file of options, is out of bounds."""


class DataError(OperatorError):
    """A shard or data set cannot be used."""


class ModelError(OperatorError):
    """A model cannot be used."""


class AddressError(OperatorError):
    """An address cannot be bound or reached."""


class KeyFileError(OperatorError):
    """A key, token or join-string file cannot be trusted."""


class RefusedError(OperatorError):
    """The coordinator refused this node, or the run cannot take it."""


class LayoutError(KinfolkError):
    """Names, shapes or dtypes of two points differ."""


class LocalProtocolError(KinfolkError):
    """We were about to break the protocol: a bug of ours."""


class RemoteProtocolError(KinfolkError):
    """The other side broke the protocol."""


class TransportClosedError(KinfolkError):
    """The transport was closed while a caller waited on it."""
