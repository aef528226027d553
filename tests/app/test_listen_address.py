import socket
from collections.abc import Iterator

import pytest

from app.listen_address import check_listen_address
from app.settings import InvalidSettings, Settings


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_port_in_use_is_refused_with_its_flag(taken: int) -> None:
    with pytest.raises(InvalidSettings) as caught:
        check_listen_address(Settings(port=taken))
    assert str(caught.value) == f"can't listen with --host 127.0.0.1 --port {taken}: Address already in use"


def test_a_free_port_stays_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        # What this leaves behind on the server's side rests for a minute after its close.
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()
    for _ in range(2):
        check_listen_address(Settings(port=port))
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_any_port_may_be_left_to_the_system(host: str) -> None:
    check_listen_address(Settings(host=host, port=0))


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_that_is_not_ours_is_refused_by_name(host: str) -> None:
    """192.0.2.0/24 is kept for documentation: RFC 5737."""
    with pytest.raises(InvalidSettings) as caught:
        check_listen_address(Settings(host=host, port=0))
    assert host in str(caught.value)
    assert "--host" in str(caught.value)
