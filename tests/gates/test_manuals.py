"""Manual pages and completions have all that the tables of the program have, and can be read."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOX = ROOT / "build/box"


def box(*words):
    return subprocess.run([BOX, *words], capture_output=True, text=True, check=True, timeout=60).stdout


def commands():
    """{command: [options]}, from the manual that the program prints."""
    found = {}
    for section in re.split(r"^## box ", box("help", "--markdown"), flags=re.M)[1:]:
        section = section.partition("\n## ")[0]
        found[section.splitlines()[0]] = re.findall(r"^\| (?:`-\w`, )?`--([a-z-]+)", section, re.M)
    return found


COMMANDS = commands()


def test_there_is_a_page_for_each_command(tmp_path):
    box("help", "--man", str(tmp_path / "man1"))
    pages = {path.name: path.read_text() for path in (tmp_path / "man1").iterdir()}
    assert set(pages) == {"box.1", *(f"box-{name.replace(' ', '-')}.1" for name in COMMANDS)}
    for name, options in COMMANDS.items():
        assert f"box {name}" in pages["box.1"], name
        page = pages[f"box-{name.replace(' ', '-')}.1"].replace("\\-", "-")
        assert not [option for option in options if f"--{option}" not in page], name
    if not shutil.which("groff"):
        pytest.skip("LOUD: there is no groff here to read them with")
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", *map(str, (tmp_path / "man1").iterdir())], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr[:2000]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_has_every_command_and_option(shell):
    script = box("completion", shell)
    for name, options in COMMANDS.items():
        assert name.split()[-1] in script, name
        for option in options:
            assert re.search(rf"(--|-l ){option}\b", script), (name, option)
    if not shutil.which(shell):
        pytest.skip(f"LOUD: there is no {shell} here to read it with")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_fish_offers_what_fits(tmp_path):
    if not shutil.which("fish"):
        pytest.skip("LOUD: there is no fish here")
    (tmp_path / "box.fish").write_text(box("completion", "fish"))

    def offered(line):
        script = f"source {tmp_path}/box.fish; complete -C '{line}'"
        done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True, timeout=60)
        return [row.split("\t")[0] for row in done.stdout.splitlines()]

    assert {"new", "fork", "image"} <= set(offered("box ")) and "build" not in offered("box ")
    assert {"build", "ls"} <= set(offered("box image ")) and "new" not in offered("box image ")
    assert offered("box new --prof") == ["--profile"] and "running" in offered("box ls --state ")


def test_zsh_offers_what_fits(tmp_path):
    if not shutil.which("zsh"):
        pytest.skip("LOUD: there is no zsh here")
    (tmp_path / "_box").write_text(box("completion", "zsh"))

    def offered(line):
        """What compadd is given, in a zsh with a terminal of its own."""
        script = f"""
            zmodload zsh/zpty; zpty z zsh -f -i
            zpty -w z 'fpath=({tmp_path} $fpath); autoload -U compinit; compinit -u -d {tmp_path}/dump; PS1=; LISTMAX=999'
            zpty -w z 'zstyle ":completion:*" list-colors ""; bindkey "^I" list-choices; setopt nobeep; echo re""ady'
            zpty -r z out '*ready*'; sleep 0.3
            zpty -wn z '{line}'$'\\t'; sleep 1.5; zpty -wn z $'\\x15'; zpty -w z 'echo ov""er'
            zpty -r z out '*over*'; print -r -- "$out"; zpty -d z"""
        done = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True, timeout=60, env={"TERM": "dumb", "PATH": "/usr/bin:/bin"})
        return done.stdout

    assert "rollback" in offered("box ")
    assert "build an image" in offered("box image ")
