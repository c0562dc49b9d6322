"""hcq-trace as a whole: its help, its exit status, recording, and files that are no traces."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hcq.tools import hcq_trace
from hcq.trace.file import Trace
from hcq.trace.records import MAGIC, Kind, pack_record

ROOT = Path(__file__).parents[3]
# every verb that reads a trace; {} is the file
READERS = (
    ("show", "{}"),
    ("show", "{}", "--json"),
    ("disasm", "{}"),
    ("disasm", "{}", "kernel"),
    ("lint", "{}"),
    ("diff", "{}", "{}"),
    ("stats", "{}"),
    ("graph", "{}"),
    ("export", "{}", "--perfetto", "-o", "{}.out"),
    ("export", "{}", "--json"),
    ("export", "{}", "--csv"),
    ("replay", "{}"),
    ("minimise", "{}", "--rule", "address-freed", "-o", "{}.small"),
    ("edit", "{}"),
)


def verb_names() -> set[str]:
    lines = hcq_trace.parser().format_help().splitlines()
    return {line.split()[0] for line in lines if line.startswith("    ") and line[4] != " "}


def test_the_help_teaches_every_verb(capsys):
    for verb in ((), ("show",), ("replay",)):
        with pytest.raises(SystemExit) as left:
            hcq_trace.main([*verb, "--help"])
        assert left.value.code == 0
    text = capsys.readouterr().out
    page = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
    names = verb_names()
    assert names >= {one[0] for one in READERS} | {"record", "assemble", "serve"}
    for name in names:
        assert f"hcq-trace {name}" in page, name
    assert "how to read `show`" in text


def test_the_help_of_every_verb_has_commands_that_it_takes():
    verbs = next(action for action in hcq_trace.parser()._actions if action.dest == "verb")
    commands = [
        line.split("hcq-trace ", 1)[1]
        for verb in verbs.choices.values()
        for line in (verb.epilog or "").splitlines()
        if line.startswith("  ") and "hcq-trace " in line
    ]
    assert {command.split()[0] for command in commands} == set(verbs.choices)
    for command in commands:
        words = shlex.split(command.split("  ")[0].split(" | ")[0].split(" > ")[0].split(" && ")[0])
        assert hcq_trace.parser().parse_args(words).verb == words[0]


def test_lint_lists_its_rules_without_a_trace(trace):
    listed = trace("lint", "--list")
    rules = json.loads(trace("lint", "--list", "--json").out)
    assert listed.status == 0
    assert len(rules) >= 20
    for rule in rules:
        assert rule["title"] in listed.out
        page = ROOT / "docs" / "rules" / f"{rule['id']}.md"
        assert rule["title"] in page.read_text(encoding="utf-8")
    assert "lint takes a trace" in trace("lint").err


def test_every_option_is_explained():
    verbs = next(action for action in hcq_trace.parser()._actions if action.dest == "verb")
    for name, verb in verbs.choices.items():
        for action in verb._actions:
            assert action.help, f"{name} {action.option_strings or action.dest}"


def refused(arguments: tuple[str, ...], path: Path, capsys) -> str:
    capsys.readouterr()
    assert hcq_trace.main([one.replace("{}", str(path)) for one in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("hcq-trace: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("verb", READERS, ids=" ".join)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300).filter(lambda content: not content.startswith(MAGIC.split()[0])))
def test_random_bytes_get_one_clear_sentence_from_every_verb(verb, content, tmp_path, capsys):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert "not a trace" in refused(verb, path, capsys)


@pytest.mark.parametrize("verb", READERS, ids=" ".join)
def test_a_file_that_is_not_there_gets_one_clear_sentence(verb, tmp_path, capsys):
    assert "cannot be read (No such file or directory)" in refused(verb, tmp_path / "missing", capsys)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whole_records_of_nonsense_are_shown_or_refused_with_a_sentence(data, tmp_path, capsys):
    texts = st.one_of(
        st.just(b""),
        st.just(b'{"device":0,"name":"CPU","arch":"x86_64","facts":{"timeline":4096}}'),
        st.just(
            b'{"device":0,"va":4096,"size_bytes":64,"name":"x","args":null,"entry":"e","scratch_bytes":0}'
        ),
        st.binary(max_size=30),
    )
    record = st.tuples(st.integers(1, 24), st.integers(0, 1), texts, st.binary(max_size=100))
    parts = [pack_record(Kind.DEVICE, 0, 1, b'{"device":0,"name":"CPU","arch":"x86_64","facts":{}}')]
    parts += [
        pack_record(kind, process, 5, text, more)
        for kind, process, text, more in data.draw(st.lists(record, max_size=5))
    ]
    path = tmp_path / "file"
    path.write_bytes(MAGIC + b"".join(parts))
    for verb in READERS:
        status = hcq_trace.main([one.replace("{}", str(path)) for one in verb])
        err = capsys.readouterr().err
        assert status in (0, 1) or (status == 2 and err.startswith("hcq-trace: ") and err.count("\n") == 1)


@pytest.mark.parametrize("verb", [("show", "{}"), ("stats", "{}"), ("graph", "{}"), ("lint", "{}"), ("disasm", "{}"),
                                  ("export", "{}", "--perfetto"), ("diff", "{}", "{}")], ids=" ".join)  # fmt: skip
def test_a_trace_without_records_is_a_trace(verb, tmp_path):
    path = tmp_path / "empty"
    path.write_bytes(MAGIC)
    assert hcq_trace.main([one.replace("{}", str(path)) for one in verb]) == 0


def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(one) for one in arguments], capture_output=True, text=True, timeout=50, **options
    )


def test_record_runs_a_command_and_passes_its_status_on(tmp_path, trace):
    path = tmp_path / "t"
    script = "import hcq; hcq.open('CPU').queue().submit().wait(); raise SystemExit(7)"
    assert trace("record", "-o", path, "--", sys.executable, "-c", script).status == 7
    assert len(Trace.read(str(path)).submissions) == 1
    assert trace("record", "--data", "-o", path, "--", sys.executable, "-c", script).status == 7
    assert len(Trace.read(str(path)).submissions) == 1  # the old trace is gone


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_record_says_which_signal_ended_the_command_and_keeps_what_it_did(tmp_path, trace, number):
    path = tmp_path / "t"
    script = f"import hcq, os; hcq.open('CPU').queue().submit().wait(); os.kill(os.getpid(), {int(number)})"
    done = trace("record", "-o", path, "--", sys.executable, "-c", script)
    assert done.status == 128 + number
    assert f"was ended by {number.name}; {path} holds what came before" in done.err
    assert len(Trace.read(str(path)).submissions) == 1


def test_control_c_is_the_commands(tmp_path):
    path = tmp_path / "t"
    script = """
import hcq, time
dev = hcq.open("CPU")
dev.queue().submit().wait()
try:
    print("ready", flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    dev.queue().submit().wait()
    raise SystemExit(5)
"""
    started = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hcq.tools.hcq_trace",
            "record",
            "-o",
            str(path),
            "--",
            sys.executable,
            "-c",
            script,
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    os.killpg(started.pid, signal.SIGINT)  # as a terminal does
    _, err = started.communicate(timeout=20)
    assert (started.returncode, err) == (5, "")
    assert len(Trace.read(str(path)).submissions) == 2


def test_record_does_not_replace_what_is_no_trace(tmp_path, trace):
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    done = trace("record", "-o", path, "--", "true")
    assert done.status == 2
    assert "is no trace, and recording would replace it" in done.err
    assert path.read_text() == "years of work"


def test_record_says_what_it_cannot_do(tmp_path, trace):
    assert "give a command after --" in trace("record").err
    assert "/no/such cannot be started" in trace("record", "-o", tmp_path / "t", "--", "/no/such").err
    done = trace("record", "-o", tmp_path / "t", "--", sys.executable, "-c", "pass")
    assert done.status == 0
    assert "opened no hcq device; nothing was recorded" in done.err


def test_a_reader_that_has_seen_enough_ends_it_quietly(capsule):
    done = run(
        "sh",
        "-c",
        f"{sys.executable} -m hcq.tools.hcq_trace show {capsule} --hex --memory | head -1",
        cwd=ROOT,
    )
    assert done.stdout.startswith("process ")
    assert done.stderr == ""


def test_it_runs_as_a_file_of_a_checkout(capsule, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = run(
        sys.executable,
        ROOT / "tools" / "hcq_trace.py",
        "show",
        capsule,
        "--last",
        "1",
        cwd=tmp_path,
        env=environment,
    )
    assert done.stdout.startswith("#4 ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    "content", [MAGIC + b"noise" * 30, MAGIC[:-1], MAGIC[:9]], ids=["noise", "cut", "name"]
)
def test_what_begins_like_a_trace_gets_one_clear_sentence(content, tmp_path, capsys):
    path = tmp_path / "file"
    path.write_bytes(content)
    for verb in READERS[:-1]:
        assert "trace" in refused(verb, path, capsys)


def test_a_trace_of_a_later_version_is_refused_with_its_version(tmp_path, trace):
    path = tmp_path / "t"
    path.write_bytes(b"HCQTRACE 99\n")
    assert "a trace of version 99, and this program reads version 2" in trace("show", path).err


def test_lint_finds_what_was_broken_and_nothing_else(trace, capsule, tmp_path):
    import re

    assert trace("lint", capsule).out.startswith("clean: 4 submissions")
    text, broken = tmp_path / "text", tmp_path / "broken"
    trace("edit", capsule, "-o", text)
    content = text.read_text()
    text.write_text(re.sub(r"^(  Copy .*dst=)0x[0-9a-f]+", r"\g<1>0x123000", content, flags=re.M))
    trace("assemble", text, "-o", broken)
    done = trace("lint", broken)
    assert done.status == 1
    assert "[address-unmapped]" in done.out
    found = json.loads(trace("lint", broken, "--json").out)
    assert [(one["rule"], one["submission"]) for one in found if one["level"] == "error"] == [
        ("address-unmapped", 3)
    ]
    assert trace("lint", broken, "--rule", "address-freed").status == 0
    shown = trace("show", broken, "--submission", "3").out
    assert "16 bytes other -> unknown@0x123000" in shown
    assert "the command was: 16 bytes other -> out+0x20" in shown


@pytest.mark.deadline(180)
@pytest.mark.slow
def test_a_training_run_goes_through_every_verb(trace, tmp_path):
    first, second, capsule = tmp_path / "first", tmp_path / "second", tmp_path / "capsule"
    program = [sys.executable, ROOT / "examples" / "digits.py", "--epochs", "1"]
    for path, options in ((first, ()), (second, ()), (capsule, ("--data",))):
        assert trace("record", *options, "-o", path, "--", *program).status == 0
    assert "Dispatch" in trace("show", first, "--last", "2").out
    assert trace("lint", first).out.startswith("clean")
    assert "busy" in trace("stats", first).out
    assert "No submission waits" in trace("graph", first).out
    assert trace("diff", first, second).out.startswith("same work")
    assert trace("replay", capsule).out.startswith("same results, bit for bit")
    text, back = tmp_path / "text", tmp_path / "back"
    for path in (first, capsule):
        assert trace("edit", path, "-o", text).status == trace("assemble", text, "-o", back).status == 0
        assert back.read_bytes() == path.read_bytes()
    kernel = trace("disasm", first).out.split("  ")[0]
    assert "ret" in trace("disasm", first, kernel).out
    for form in ("--perfetto", "--csv", "--json"):
        out = tmp_path / "out"
        assert trace("export", first, form, "-o", out).status == 0
        assert out.stat().st_size > 1000
