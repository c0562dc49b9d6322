"""An editor debugs kernels by the Debug Adapter Protocol, on stdio and TCP."""

from __future__ import annotations

import base64
import importlib.util
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq.debug.dap import Editor
from tests.hcq.debug.dap_client import Client
from tests.hcq.debug.rig import PTX

ROOT = Path(__file__).parents[3]
PROGRAM = """
import struct
import sys
import hcq
dev = hcq.open("NV")
program = dev.load(open(sys.argv[1], "rb").read(), "matmul")
c, a, b = (dev.alloc(4096, name=name) for name in "CAB")
a.write(struct.pack("<1024f", *[1.0] * 1024))
b.write(struct.pack("<1024f", *[2.0] * 1024))
dev.run(program, [c, a, b], (32, 1, 1), (32, 1, 1))
print("element", struct.unpack("<f", c.read(20, 4))[0])
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "matmul.ptx").write_text(PTX)
    return [str(tmp_path / "program.py"), str(tmp_path / "matmul.ptx")]


@pytest.fixture
def start() -> Iterator[Callable[..., Client]]:
    processes: list[subprocess.Popen[bytes]] = []

    def make(*words: str, port: bool = False) -> Client:
        command = [sys.executable, "-m", "hcq", "debug", "--dap", *(["0"] if port else []), *words]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
        )
        processes.append(process)
        if not port:
            return Client(process.stdout, process.stdin)
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        connection = socket.create_connection(("127.0.0.1", int(said.rpartition(":")[2])))
        return Client(connection.makefile("rb"), connection.makefile("wb"))

    yield make
    for process in processes:
        process.kill()
        process.communicate()


def begin(client: Client, files: list[str], **launch: Any) -> None:
    """The order of the specification: initialize, launch, initialized, points, configurationDone."""
    capabilities = client.ask("initialize", adapterID="hcq", linesStartAt1=True, columnsStartAt1=True)
    assert capabilities["supportsStepBack"]
    launched = client.send("launch", program=files[0], args=files[1:], gpus="nv:sm_90", **launch)
    client.event("initialized")
    client.ask("setFunctionBreakpoints", breakpoints=[{"name": "matmul"}])
    client.ask("setExceptionBreakpoints", filters=[])
    client.send("configurationDone")
    assert client.response(launched)["success"]


@pytest.mark.parametrize("port", [False, True], ids=["stdio", "tcp"])
def test_a_session_from_the_first_breakpoint_back_and_to_the_end(
    start: Callable[..., Client], files: list[str], port: bool
) -> None:
    client = start(port=port)
    begin(client, files)
    here = client.stopped()
    assert here["reason"] == "function breakpoint"
    assert here["frame"]["name"].startswith("matmul: ld.param.u64 %rd1")
    assert here["frames"][1]["name"].startswith("launch 1, step 1: packet")
    source = here["frame"]["source"]
    text = client.ask("source", source=source, sourceReference=source["sourceReference"])["content"]
    assert "ld.param.u64 %rd1" in text.splitlines()[here["frame"]["line"] - 1]

    store = next(n for n, one in enumerate(text.splitlines(), 1) if "st.global.u32" in one)
    wanted = [{"line": store, "condition": "wave == 3"}]
    (point,) = client.ask("setBreakpoints", source=source, breakpoints=wanted)["breakpoints"]
    assert point["verified"]
    client.ask("setFunctionBreakpoints", breakpoints=[])
    client.ask("continue", threadId=here["threadId"])
    there = client.stopped()
    assert there["hitBreakpointIds"] == [point["id"]]
    assert there["frame"]["line"] == store
    threads = {one["id"]: one["name"] for one in client.ask("threads")["threads"]}
    assert threads[there["threadId"]].startswith("warp 3")
    frame = there["frame"]["id"]
    registers = client.variables(frame, "Registers")
    assert registers["%r2"]["value"] == "3"
    assert registers["%r1"]["value"] == "7"
    lanes = client.ask("variables", variablesReference=registers["%r1"]["variablesReference"])["variables"]
    assert [one["name"] for one in lanes if "(off)" not in one["name"]] == ["lane 7"]
    assert client.variables(frame, "shared memory")["0x0"]["value"] == "0x3f800000 (1)"

    assert client.ask("evaluate", expression="%r1 * 2", frameId=frame, context="watch")["result"] == "14"
    assert "st.global" in client.ask("evaluate", expression="disasm", context="repl")["result"]
    address = int(client.ask("evaluate", expression="%rd1", context="hover")["result"])
    read = client.ask("readMemory", memoryReference=hex(address), offset=16, count=8)
    assert struct.unpack("<2f", base64.b64decode(read["data"])) == (64.0, 64.0)

    client.ask("stepBack", threadId=there["threadId"], granularity="instruction")
    before = client.stopped()
    assert before["frame"]["line"] < store
    data = client.ask("dataBreakpointInfo", name=f"{address + 20:#x}")
    client.ask("setDataBreakpoints", breakpoints=[{"dataId": data["dataId"], "accessType": "write"}])
    client.ask("reverseContinue", threadId=before["threadId"])
    first = client.stopped()
    assert "st.global.f32" in first["frame"]["name"]
    read = client.ask("readMemory", memoryReference=hex(address + 20), count=4)
    assert base64.b64decode(read["data"]) == bytes(4)
    client.ask("setDataBreakpoints", breakpoints=[])
    client.ask("setBreakpoints", source=source, breakpoints=[])
    client.ask("continue", threadId=first["threadId"])
    client.event("terminated")
    assert client.event("exited") == {"exitCode": 0}
    output = [one["body"]["output"] for one in client.seen if one.get("event") == "output"]
    assert "element 42.0" in "".join(output)
    _check_by_schema(client)


def _check_by_schema(client: Client) -> None:
    """A second opinion, where debugpy is installed: its classes were made from the protocol's schema."""
    found = importlib.util.find_spec("debugpy")
    if found is None or found.origin is None:
        return
    vendored = Path(found.origin).parent / "_vendored" / "pydevd"
    sys.path.insert(0, str(vendored))
    try:
        from _pydevd_bundle._debug_adapter import pydevd_base_schema, pydevd_schema  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(vendored))
    assert pydevd_schema
    for message in client.seen:
        pydevd_base_schema.from_dict(message)


def test_instruction_breakpoints_stop_at_disassembled_instructions(
    start: Callable[..., Client], files: list[str]
) -> None:
    client = start()
    begin(client, files, threads="lanes")
    here = client.stopped()
    reference = here["frame"]["instructionPointerReference"]
    found = client.ask("disassemble", memoryReference=reference, instructionOffset=-2, instructionCount=12)
    code = found["instructions"]
    assert len(code) == 12
    assert code[0]["presentationHint"] == "invalid"
    assert code[2]["address"] == reference
    client.ask("setInstructionBreakpoints", breakpoints=[{"instructionReference": code[6]["address"]}])
    client.ask("continue", threadId=here["threadId"])
    there = client.stopped()
    assert there["reason"] == "instruction breakpoint"
    assert there["frame"]["instructionPointerReference"] == code[6]["address"]
    threads = client.ask("threads")["threads"]
    assert len(threads) == 32  # the lanes of a warp
    assert threads[5]["name"] == "block (0, 0, 0), thread (5, 0, 0)"
    frame = client.ask("stackTrace", threadId=threads[5]["id"])["stackFrames"][0]
    assert client.variables(frame["id"], "Registers")["%r1"]["value"] == "5"
    client.ask("next", threadId=threads[5]["id"])
    assert client.stopped()["threadId"] == threads[5]["id"]


def test_what_makes_no_sense_is_refused_and_the_session_goes_on(
    start: Callable[..., Client], files: list[str]
) -> None:
    client = start()
    begin(client, files, stopOnEntry=True)
    entry = client.event("stopped")
    assert entry["reason"] == "entry"
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("noSuchRequest", {}),
        ("scopes", {"frameId": 99}),
        ("variables", {}),
        ("evaluate", {"expression": "v1 +"}),
        ("disassemble", {"memoryReference": "0x10", "instructionCount": 4}),
        ("readMemory", {"memoryReference": "x", "count": 4}),
        ("setBreakpoints", {"source": {"sourceReference": 7}, "breakpoints": [{"line": 1}]}),
        ("next", {"threadId": 1}),
    ]
    for command, arguments in wrong:
        response = client.response(client.send(command, **arguments))
        assert not response["success"], command
        assert response["message"], command
    client.ask("continue", threadId=entry["threadId"])
    assert client.stopped()["reason"] == "function breakpoint"
    assert client.response(client.send("disconnect"))["success"]


STRANGE: list[Any] = [
    None, [], "x", 3, {"threadId": []}, {"source": "x", "breakpoints": {}}, {"source": [{}], "sourceReference": ""},
    {"breakpoints": [None]}, {"breakpoints": [{"name": None}, {}]}, {"breakpoints": 7}, {"variablesReference": -1},
    {"frameId": 2**70, "expression": "1"}, {"memoryReference": "0x10", "count": 2**70}, {"registers": "x"},
    {"memoryReference": "0x10", "instructionCount": 1.5}, {"expression": {"a": 1}, "context": "repl"}, {"filters": 3},
    {"registers": [None, 3], "as": "f99"}, {"name": [], "bytes": "x"}, {"threadId": 2**70, "granularity": {}},
]  # fmt: skip


@pytest.mark.parametrize("is_stopped", [False, True], ids=["before it begins", "stopped"])
def test_requests_of_any_form_and_order_are_answered(
    start: Callable[..., Client], files: list[str], is_stopped: bool
) -> None:
    client = start()
    if is_stopped:
        begin(client, files)
        client.stopped()
    moves = ("continue", "next", "stepIn", "stepOut", "stepBack", "reverseContinue", "launch", "attach")
    ends = ("disconnect", "terminate", "configurationDone", "initialize")
    names = [one.removeprefix("_on_") for one in dir(Editor) if one.startswith("_on_")]
    for name in [*names, "nothing", "__class__", ""]:
        for arguments in STRANGE:
            if name in ends or (name in moves and (not arguments or isinstance(arguments, dict))):
                continue
            seq = client.send_any(name, arguments)
            response = client.response(seq)
            assert response["success"] or response["message"]
    if is_stopped:
        assert client.ask("evaluate", expression="where", context="repl")["result"]


@pytest.mark.parametrize(
    "message",
    [
        b"Content-Length: 5\r\n\r\n[1,2]",
        b"Content-Length: 3\r\n\r\n{a}",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: 200000\r\n\r\n" + b"[" * 200000,
        b"Content-Length: 2\r\n\r\n\xff\xfe",
        b"x" * 10000,
    ],
)
def test_what_is_no_message_ends_the_session_with_a_sentence(files: list[str], message: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hcq", "debug", "--dap", "nv:sm_90", "--", *files],
        input=message,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert b"hcq debug --dap: a " in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_line_that_moves_says_that_it_continues(start: Callable[..., Client], files: list[str]) -> None:
    client = start()
    begin(client, files)
    client.stopped()
    client.ask("evaluate", expression="step", context="repl")
    assert client.event("continued")["allThreadsContinued"]
    assert client.stopped()["reason"] == "step"


METAL = '''
import struct
import hcq
TEXT = b"""kernel void twice(device uint* out [[buffer(0)]], uint t [[thread_position_in_grid]]) {
  uint a = t + 1u, b = t * 2u;
  if (t > 3u) {
    b = b + a;
  }
  out[t] = a + b;
}
"""
device = hcq.open("METAL")
out = device.alloc(32, name="out")
device.run(device.load(TEXT, "twice"), [out], (1, 1, 1), (8, 1, 1))
print("element", struct.unpack("<I", out.read(28, 4))[0])
'''


def test_metals_text_is_shown_whole_and_stops_are_in_its_lines(
    start: Callable[..., Client], tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(METAL)
    client = start()
    client.ask("initialize", adapterID="hcq")
    client.event("initialized")
    launched = client.send("launch", program=str(tmp_path / "program.py"), gpus="metal:m3")
    client.ask("setFunctionBreakpoints", breakpoints=[{"name": "twice"}])
    client.ask("configurationDone")
    assert client.response(launched)["success"]
    lines = []
    stopped = client.stopped()
    for _ in range(4):
        frame = client.ask("stackTrace", threadId=stopped["threadId"])["stackFrames"][0]
        lines.append(frame["line"])
        client.ask("stepIn", threadId=stopped["threadId"], granularity="line")
        stopped = client.stopped()
    text = client.ask("source", sourceReference=frame["source"]["sourceReference"])["content"].splitlines()
    assert [text[line - 1].strip() for line in lines] == [
        "uint a = t + 1u, b = t * 2u;", "if (t > 3u) {", "b = b + a;", "out[t] = a + b;",
    ]  # fmt: skip
    client.ask("setFunctionBreakpoints", breakpoints=[])
    client.send("continue", threadId=stopped["threadId"])
    assert client.event("exited")["exitCode"] == 0
    client.event("terminated")
    assert client.response(client.send("disconnect"))["success"]  # it waits for that, and ends then
