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


# ---- pages that people wrote -----------------------------------------------------------------

PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.name not in ("cli.md", "decisions.md")]
INSIDE = {"self", "fork", "ls", "exec", "rm", "snapshot", "rollback", "snapshots", "help", "cp"}  # verbs of the `box` in boxes

HIDDEN = {"serve", "gate", "dial-stdio"}


def command_lines(page):
    """The words of each `box …` in the blocks and the code of a page, up to what belongs to a
    program."""
    text = page.read_text()
    blocks = [line.strip().removeprefix("$ ") for line in text.splitlines() if line.startswith("    ")]
    for line in (*blocks, *re.findall(r"`(box [^`]+)`", text)):
        for one in re.split(r"; |&& |\| |\$\(|#", line):
            words = one.strip().split()
            if words[:1] == ["box"] and len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]):
                yield line, words[1:words.index("--")] if "--" in words else words[1:]


def test_commands_and_options_of_the_pages_exist():
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    common = {"json", "quiet", "help"}
    wrong = []
    for page in PAGES:
        for line, words in command_lines(page):
            name = " ".join(words[:2]) if words[0] in groups else words[0]
            if words[0] in groups and (len(words) < 2 or "|" in words[1] or not re.fullmatch(r"[a-z-]+", words[1])):
                continue  # `box policy`, the group itself
            if page.name == "inside.md" and words[0] in INSIDE:
                continue
            if name in ("ada", "outside") or name in HIDDEN:
                continue
            if name not in COMMANDS:
                wrong.append(f"{page.name}: there is no 'box {name}': {line}")
                continue
            given = {re.split(r"[=\[|]", word[2:])[0].rstrip(",.;)]") for word in words if word.startswith("--") and len(word) > 2}
            wrong += [f"{page.name}: box {name} has no --{flag}: {line}" for flag in given - common - set(COMMANDS.get(name, ()))]
    assert not wrong, "\n".join(wrong)


def test_every_setting_is_explained_and_every_explanation_is_a_setting():
    source = (ROOT / "src/conf/conf.c").read_text()
    known = dict(re.findall(r'^\t\{ "([a-z_]+)", (?:"(BOX_[A-Z_]+)"|NULL), set_', source, re.M))
    page = (ROOT / "docs/conf.md").read_text()
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \| ((?:`BOX_[A-Z_]+`(?:, )?)*)", page, re.M)
    told = {}
    for names, variables in rows:
        names, variables = re.findall(r"[a-z_]+", names), re.findall(r"[A-Z_]+", variables)
        told.update(zip(names, variables or [""] * len(names)))
    assert known and known == told


def test_files_that_pages_and_comments_name_exist():
    """`core/recover.c` in a page: somebody will look for it."""
    wrong = []
    for page in (ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *PAGES, ROOT / "docs/decisions.md"):
        for name in re.findall(r"`((?:[a-z0-9_]+/)+[a-z0-9_]+\.(?:c|h|py))`", page.read_text()):
            if not any((top / name).exists() for top in (ROOT, ROOT / "src", ROOT / "src/core", ROOT / "tests")):
                wrong.append(f"{page.name}: {name}")
    assert not wrong, "\n".join(wrong)
