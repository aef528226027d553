from tests.app.layered import SECRET, layered, recorded
from tests.client import RawConnection


async def test_a_fault_is_500_without_details_and_logged_once_with_the_id() -> None:
    with recorded("tailrace.error") as ours, recorded("uvicorn.error") as uvicorns:
        async with layered() as (client, _):
            reply = await client.get("/fault", headers={"x-request-id": "mine"})
            assert (reply.status, reply.error.type, reply.error.code) == (500, "server_error", "internal_error")
            assert SECRET not in reply.body.decode()
            assert b"Traceback" not in reply.body
            assert (await client.get("/id")).status == 200
    (record,) = ours.records
    assert vars(record)["request_id"] == "mine"
    assert record.exc_info is not None
    assert SECRET in str(record.exc_info[1])
    assert not [each for each in uvicorns.records if each.exc_info]


async def test_a_fault_after_the_start_cuts_the_answer() -> None:
    with recorded("tailrace.error") as ours, recorded("uvicorn.error"):
        async with layered() as (client, server):
            connection = await RawConnection.open("127.0.0.1", server.port)
            connection.send_request("GET", "/late-fault")
            answer = await connection.read_to_end()
            await connection.close()
            assert (await client.get("/id")).status == 200
    assert answer.endswith(b"5\r\nfirst\r\n")
    assert SECRET.encode() not in answer
    assert len(ours.records) == 1
