"""Write what is made from code: the pages of settings, commands and options, and the pictures.

`--check` writes nothing and fails if one is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer.main
from dashboard import dashboard
from pictures import PICTURES

from lastword import config
from lastword.cli import app
from lastword.spark.options import OPTIONS

DOCS = Path(__file__).parent


def settings_page() -> str:
    """Every setting, from the table in config.py."""
    topic = config.describe_topic({}, {})
    store = config.describe_store({})
    synonyms = {topic_key: store_key for store_key, topic_key in config.SYNONYMS.items()}
    own = [s for s in store if s.key not in config.SYNONYMS]
    lines = [
        "# Settings",
        "",
        "<!-- made by docs/generate.py from src/lastword/config.py: do not edit -->",
        "",
        "Names, defaults and bounds are Kafka's, with four exceptions: topics made here are",
        "compacted unless they say otherwise, `segment.bytes` is 256 MiB (a Spark task's size),",
        "`file.delete.delay.ms` is an hour (readers here are jobs, not sockets), and",
        "`compression.type` has no `producer`: files are lz4 unless a topic says otherwise.",
        "",
        "## Of a topic",
        "",
        "A topic's value is its own, else the store's, else the default. Change it with",
        "`topic.alter({…})` or `lastword configs alter TOPIC --set KEY=VALUE`.",
        "",
        "| setting | default | bounds | the store's name for it | meaning |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| `{s.key}` | {s.default} | {s.bounds} | {_code(synonyms.get(s.key))} | {s.sentence} |"
            for s in topic
        ),
        "",
        "## Of the store",
        "",
        "Besides the names in the fourth column above, which set the default for every topic.",
        "Change them with `store.alter({…})` or `lastword configs alter --set KEY=VALUE`.",
        "",
        "| setting | default | bounds | meaning |",
        "| --- | --- | --- | --- |",
        *(f"| `{s.key}` | {s.default} | {s.bounds} | {s.sentence} |" for s in own),
    ]
    return "\n".join(lines) + "\n"


def spark_options_page() -> str:
    """Every option of `format("lastword")`, from the table in spark/options.py."""
    titles = {"b": "batch read", "s": "streaming read", "w": "write"}
    lines = [
        '# Options of `format("lastword")`',
        "",
        "<!-- made by docs/generate.py from src/lastword/spark/options.py: do not edit -->",
        "",
        "Names, defaults and rules are those of Spark's Kafka source and sink, but for `store`, `view`,",
        "`columns`, `writerId` and `writerVersion`. Names are case-insensitive. Options of a broker",
        "(`kafka.…`, `groupIdPrefix` and the like) are ignored; one that is nearly an option of ours is",
        "an error. How they are used: [With Spark](spark.md).",
        "",
        "| option | for | default | meaning |",
        "| --- | --- | --- | --- |",
        *(
            f"| `{o.name}` | {', '.join(titles[q] for q in o.queries)} | {o.default} | {o.sentence} |"
            for o in OPTIONS
        ),
    ]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Every command, from the command line's own help."""
    root = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        "<!-- made by docs/generate.py from src/lastword/cli: do not edit -->",
        "",
        "Results go to standard output, progress and errors to standard error. Exit code 0: done;",
        "1: an error, in one line (`lastword -v …` shows the traceback); 2: wrong usage; 130: interrupted.",
        "",
    ]
    lines += _command_lines(root, "lastword")
    return "\n".join(lines).rstrip() + "\n"


def _command_lines(command: Any, name: str) -> list[str]:
    children = getattr(command, "commands", None)
    if children:
        return [
            line
            for child in children.values()
            for line in _command_lines(child, f"{name} {child.name}")
        ]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *(_argument(a) for a in arguments), "[OPTIONS]"])
    rows = [
        f"| {_code(', '.join(p.opts))} | {_default(p)} | {_help(p)} |"
        for p in command.params
        if p.param_type_name == "option" and p.name != "help"
    ]
    return [
        f"## {name}",
        "",
        f"`{usage}`",
        "",
        (command.help or "").strip(),
        "",
        "| option | default | meaning |",
        "| --- | --- | --- |",
        *(f"| {_code(_argument(a))} |  | {_help(a)} |" for a in arguments),
        *rows,
        "",
    ]


def _argument(argument: Any) -> str:
    name = (argument.name or "").upper() + ("…" if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _default(parameter: Any) -> str:
    default = parameter.default
    if default is None or default is False or callable(default):
        return ""
    return _code(str(default))


def _help(parameter: Any) -> str:
    environment = f" (environment: `{parameter.envvar}`)" if parameter.envvar else ""
    return str(getattr(parameter, "help", "") or "").replace("|", "\\|") + environment


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


PAGES = {
    "settings.md": settings_page,
    "commands.md": commands_page,
    "spark-options.md": spark_options_page,
    "monitoring/grafana.json": dashboard,
}


def main(check: bool) -> None:
    made = {name: page() for name, page in PAGES.items()}
    made |= {f"guide/pictures/{name}.svg": draw().svg() for name, draw in PICTURES.items()}
    stale = [name for name, text in made.items() if _stored(DOCS / name) != text]
    if check and stale:
        sys.exit(f"out of date: {', '.join(stale)}; run 'make docs'")
    for name in stale:
        (DOCS / name).write_text(made[name], encoding="utf-8")


def _stored(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    main(check="--check" in sys.argv)
