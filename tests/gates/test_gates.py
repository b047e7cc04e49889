"""The gates themselves: each refuses what it is there for."""
import importlib.machinery
import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def script(name):
    """One of scripts/ that is Python, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


# ---- include arrows --------------------------------------------------------------------------

ROWS = """| folder | is | includes, besides base | libraries |
| --- | --- | --- | --- |
| `src/base` | text | nothing | |
| `src/top` | a door | low/*, not base/json.h | zstd |
| `src/low` | a thing | | |
| `src/low/deep` | a part | low | |
| `attack` | a program | nothing | |
"""
GOOD = {
    "src/base/text.h": "", "src/low/low.h": '#include "base/text.h"\n', "src/low/low_internal.h": "",
    "src/low/deep/x.h": '#include "low/low_internal.h"\n', "attack/main.c": '#include "attack/a.h"\n',
    "src/top/top.c": '#include "low/deep/x.h"\n#include "low/low.h"\n#include <zstd.h>\n',
}


def includes(tmp_path, rows=ROWS, **files):
    """What the gate says of a small tree with these files too ('__' for '/')."""
    tree = {**GOOD, **{name.replace("__", "/") + ".c": text for name, text in files.items()}}
    for name, text in tree.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "ARCHITECTURE.md").write_text(rows)
    (tmp_path / "scripts").mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts/check-includes", tmp_path / "scripts")
    return run("scripts/check-includes", cwd=tmp_path)


def test_includes_that_the_table_allows_pass(tmp_path):
    code, output = includes(tmp_path)
    assert code == 0, output


def test_an_include_that_points_up_is_refused(tmp_path):
    code, output = includes(tmp_path, src__low__bad='#include "top/top.h"\n')
    assert code == 1 and "src/low/bad.c:1: top/top.h" in output


def test_a_subfolder_is_a_folder_of_its_own(tmp_path):
    code, output = includes(tmp_path, src__low__bad='#include "low/deep/x.h"\n')
    assert code == 1 and "src/low may include nothing only" in output
    code, output = includes(tmp_path, src__low__new__a="")
    assert code == 1 and "src/low/new: has no row in ARCHITECTURE.md" in output


def test_private_headers_are_private(tmp_path):
    code, output = includes(tmp_path, src__top__bad='#include "low/low_internal.h"\n')
    assert code == 1 and "private to low" in output


def test_the_attacker_includes_nothing_of_ours(tmp_path):
    code, output = includes(tmp_path, attack__bad='#include "base/text.h"\n')
    assert code == 1 and "attack/bad.c:1" in output


def test_exceptions_and_libraries_are_refused(tmp_path):
    code, output = includes(tmp_path, src__top__bad='#include "base/json.h"\n', src__low__bad="#include <zstd.h>\n")
    assert code == 1 and "src/top must not include it" in output and "zstd is not in the row of src/low" in output


def test_a_row_that_is_more_than_the_truth_is_refused(tmp_path):
    code, output = includes(tmp_path, rows=ROWS + "| `src/gone` | nothing | | |\n| `src/low` | a thing | top | |\n")
    assert code == 1 and "there is no folder src/gone" in output and "src/low does not use top" in output


# ---- lint ------------------------------------------------------------------------------------


def test_lint_finds_a_bug_and_remembers_what_passed(tmp_path):
    for name in ("scripts", "src/a", "guest", "attack"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/lint", tmp_path / "scripts")
    shutil.copy(ROOT / ".clang-tidy", tmp_path)
    (tmp_path / "src/a/a.h").write_text("int twice(int number);\n")
    (tmp_path / "attack/a.c").write_text('#include "a/a.h"\nint twice(int number)\n{\n\treturn number * 2;\n}\n')
    code, output = run("scripts/lint", "--quick", cwd=tmp_path)
    passed = set((tmp_path / "build/lint").iterdir())
    assert code == 0 and len(passed) == 1, output
    (tmp_path / "src/a/a.h").write_text("long twice(int number);\n")
    code, output = run("scripts/lint", "--quick", cwd=tmp_path)
    assert code == 1 and "attack/a.c" in output, "a header has changed"
    (tmp_path / "src/a/a.h").write_text("int twice(int number);\n")
    (tmp_path / "src/a/b.c").write_text("int g(int n);\n\nint g(int n)\n{\n\tint i = 0;\n\n\twhile (i < n)\n\t\t;\n\treturn i;\n}\n")
    code, output = run("scripts/lint", "--quick", cwd=tmp_path)
    assert code == 1 and "src/a/b.c" in output and "bugprone" in output
    assert set((tmp_path / "build/lint").iterdir()) == passed


# ---- files nobody builds ---------------------------------------------------------------------


def test_a_file_that_is_not_built_fails_the_build(tmp_path):
    for name in ("scripts", "tests/unit", "build"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/check-sources", tmp_path / "scripts")
    (tmp_path / "tests/unit/test_a.c").write_text("")
    commands = [{"directory": str(tmp_path / "build"), "file": "../tests/unit/test_a.c"}]
    (tmp_path / "build/compile_commands.json").write_text(json.dumps(commands))
    assert run("scripts/check-sources", "build", "tests/unit", cwd=tmp_path)[0] == 0
    (tmp_path / "tests/unit/test_b.c").write_text("")
    code, output = run("scripts/check-sources", "build", "tests/unit", cwd=tmp_path)
    assert code == 1 and "tests/unit/test_b.c: no meson.build names it" in output
    assert "scripts/check-sources" in (ROOT / "tests/meson.build").read_text()


def test_tests_hear_the_signals_that_nohup_makes_us_ignore(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = script("test")
    module.LOGS = tmp_path
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        code, output = module.Part("signals").run(["grep", "SigIgn", "/proc/self/status"], 10)
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)
    ignored = int(output.split()[1], 16)
    assert code == 0 and not any(ignored >> (number - 1) & 1 for number in numbers)


def test_a_build_that_nobody_watches_is_one_line():
    code, output = run("scripts/build", "box", cwd=ROOT)
    assert code == 0 and re.fullmatch(r"built box: \w+ steps in \d+ s\n", output), output


def test_an_edit_of_criu_that_does_not_apply_fails_and_is_named(tmp_path):
    for name in ("criu/include", "criu/pie", "images", "compel/arch/x86/src/lib"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "criu/seize.c").write_text("static int other(void)\n{\n}\n")
    code, output = run("sh", "-euc", f"here={ROOT}/scripts; . $here/criu-changes; check_edits", cwd=tmp_path)
    assert code == 2, output
    assert "criu/seize.c: an edit finds nothing to change" in output and "criu/seize.c: dumps are slower" in output
    assert "criu/timens.c: there is no such file" in output
    assert "give_up" not in (ROOT / "scripts/criu-changes").read_text(), "missed, so that all are named at once"


def test_every_fuzzer_begins_with_samples():
    fuzzers = {path.stem.removeprefix("fuzz_") for path in ROOT.glob("tests/fuzz/fuzz_*.c")}
    corpora = {path.name: [sample.stat().st_size for sample in path.iterdir()] for path in ROOT.glob("tests/fuzz/corpus/*")}
    assert fuzzers == set(corpora)
    for name, sizes in corpora.items():
        assert len(sizes) >= 3 and max(sizes) <= 16384, f"{name}: a few small ones, at most 16 KiB each"


# ---- documents -------------------------------------------------------------------------------


def test_the_readme_and_the_architecture_stay_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 120


def test_tables_of_the_documents_are_whole():
    """A blank line ends a table: rows behind it are printed as text."""
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for block in re.findall(r"(?:^\|.*\n)+", page.read_text() + "\n", re.M):
            rows = block.splitlines()
            assert len(rows) > 2 and re.fullmatch(r"\|(?: *:?-+:? *\|)+", rows[1]), f"{page.name}: {rows[0][:60]}"
            columns = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
            for row, count in zip(rows, columns):
                assert count == columns[0], f"{page.name}: a | in a cell is written \\|: {row[:80]}"


def test_the_changelog_keeps_its_order():
    for version in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]:
        parts = re.findall(r"^### (\w+)", version, re.M)
        assert parts == [part for part in ("Added", "Changed", "Fixed", "Security") if part in parts], parts
