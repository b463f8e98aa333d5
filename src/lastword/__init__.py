"""lastword: Kafka's compacted topics on plain files, cleaned by Spark."""

from importlib.metadata import PackageNotFoundError as _NotInstalled
from importlib.metadata import version as _version

from lastword.consumer import Consumer
from lastword.errors import LastwordError
from lastword.log.read import Reader
from lastword.model import AppendResult, Record
from lastword.opening import open_store as open
from lastword.producer import Producer
from lastword.store import Store
from lastword.table import Change, Table
from lastword.topic import Topic

try:
    __version__ = _version("lastword")
except _NotInstalled:  # shipped to an executor as a bare archive
    __version__ = "unknown"

__all__ = [
    "AppendResult",
    "Change",
    "Consumer",
    "LastwordError",
    "Producer",
    "Reader",
    "Record",
    "Store",
    "Table",
    "Topic",
    "__version__",
    "open",
]
