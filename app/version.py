"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("tailrace")
except PackageNotFoundError:
    VERSION = "0+source"
