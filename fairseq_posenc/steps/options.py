"""The options of a shell script, declared by the comment at its head.

    python -m fairseq_posenc.steps.options SCRIPT [ARGUMENT ...]
    python -m fairseq_posenc.steps.options --names SCRIPT

The first form reads the arguments of a script and prints assignments for the script to evaluate;
the second prints the names of the options that a script declares.  A declaration looks like this:

    #   train.sh ARCH DATA [options] [-- flags for fairseq-train]
    #
    #   --updates N           length of the training (100000)
    #   --save-dir DIR        checkpoints and train.log (default: RUNS/ARCH)
    #   --cpu                 one process without GPU
    #   options of ../common/cluster.sh
    #   options of ../common/steps.sh --dry-run --help

ARCH and DATA are required, and ARCH is a NAME as below; ``[DATA]`` may be missing; ``DATA...`` is
an array of at least one; an option before ``[options]``, as in ``--lang LANG [options]``, is
required.  ``--updates`` sets UPDATES.  Parentheses at the end of its text hold its default; an
option without them, or where they begin with ``default:``, is empty unless given.  ``--cpu``,
without a value, sets CPU to 0 or 1.  The words after ``--`` become the array EXTRA, all arguments
the array ARGUMENTS.  ``options of FILE`` stands for the options that another script declares; if
names follow, for these options alone.  An option that is declared earlier is not repeated.
``--lang`` sets OPTION_LANG, as LANG is the shell's own.

What stands for the value says what is accepted: N a whole number above 0, N,N several with commas,
NxNxN three of them, P a number above 0, X a number, NAME what can be the name of a file in any
folder, ``a|b`` one of these, anything else any text.  ``"N ..."`` are several of them, in one
argument.
"""

import os
import re
import shlex
import sys
from typing import Dict, List, NamedTuple, NoReturn, Sequence, Tuple

_OPTION = re.compile(r'  (--[a-z0-9-]+)(?: ([^ "]+|"[^"]+"))?(?:  +(.*))?$')
_INCLUDED = re.compile(r"  options of (\S+)((?: --[a-z0-9-]+)*)$")
_DEFAULT = re.compile(r"\((?!default:)([^()]*)\)$")
_PASSED = re.compile(r" \[-- (.*)\]$")
_OF_THE_SHELL = ("LANG", "PATH", "HOME", "USER", "SHELL")
_KINDS = {
    "N": (r"[1-9][0-9]*", "a whole number above 0"),
    "N,N": (r"[1-9][0-9]*(,[1-9][0-9]*)*", "numbers such as 20000,60000"),
    "NxNxN": (r"[1-9][0-9]*(x[1-9][0-9]*){2}", "three numbers such as 512x256x200000"),
    "X": (r"-?([0-9]+\.?|[0-9]*\.[0-9]+)(e-?[0-9]+)?", "a number such as 1.5 or 2e-5"),
    "P": (r"(?=.*[1-9])([0-9]+\.?|[0-9]*\.[0-9]+)", "a number above 0, such as 1.5"),
    "NAME": (
        r"[A-Za-z0-9_][A-Za-z0-9._+-]*",
        "letters, digits, '.', '_', '+' and '-', and a letter or digit first",
    ),
}


class Option(NamedTuple):
    """An option of a script."""

    name: str  # the option, with its dashes
    kind: str  # what stands for its value; empty for a switch
    default: str  # the value where it is not given

    @property
    def variable(self) -> str:
        """The variable that it sets."""
        name = self.name[2:].upper().replace("-", "_")
        return f"OPTION_{name}" if name in _OF_THE_SHELL else name


class Declaration(NamedTuple):
    """The arguments and options that a script declares in the comment at its head."""

    text: str  # the comment at its head, as its ``--help``
    arguments: Tuple[str, ...]  # the arguments in order, as they are declared
    required: Tuple[str, ...]  # the options that have to be given
    options: Dict[str, Option]  # all options by name
    passed: str  # what may follow ``--``; empty if nothing may


class Mistake(Exception):
    """A mistake on the command line, in one line."""


def head_of(path: str) -> List[str]:
    """The comment at the head of a script, with the options of those that it includes."""
    lines: List[str] = []
    with open(path, encoding="utf-8") as stream:
        for line in stream.read().splitlines()[1:]:
            if line and not line.startswith("#"):
                break
            included = _INCLUDED.match(line[2:])
            if included:
                other = head_of(os.path.join(os.path.dirname(path), included.group(1)))
                lines += _options_of(other, included.group(2).split(), lines)
            elif line.startswith("#") and not line.startswith(("#SBATCH", "# shellcheck")):
                lines.append(line[2:])
    return lines


def _options_of(lines: Sequence[str], wanted: Sequence[str], before: Sequence[str]) -> List[str]:
    """The lines of the wanted options, or of all, but for those that are declared before."""
    known = {match.group(1) for match in map(_OPTION.match, before) if match}
    kept: List[str] = []
    taken = False
    for line in lines:
        match = _OPTION.match(line)
        if match:
            taken = match.group(1) not in known and match.group(1) in (wanted or [match.group(1)])
        taken = taken and line != ""
        kept += [line] * taken
    return kept


def declaration_of(path: str) -> Declaration:
    """Read the declaration of the script at *path*."""
    lines = head_of(path)
    name = f"  {os.path.basename(path)} "
    call = next((line[len(name) :] for line in lines if line.startswith(name)), "")
    passed = _PASSED.search(call)
    words = _PASSED.sub("", call).replace("[options]", "").split()
    required = tuple(word for word in words if word.startswith("--"))
    values = {words.index(word) + 1 for word in required}
    arguments = tuple(
        word for n, word in enumerate(words) if n not in values and word not in required
    )
    options: Dict[str, Option] = {}
    found: List[Tuple[str, str, str]] = []
    for line in lines:
        match = _OPTION.match(line)
        if match:
            flag, kind, text = match.groups("")
            found.append((flag, kind.strip('"'), text))
        elif line and found:
            found[-1] = (*found[-1][:2], f"{found[-1][2]} {line.strip()}")
        elif found:  # an empty line ends the text of the last option
            options.update({option[0]: _option(*option) for option in found})
            found = []
    options.update({option[0]: _option(*option) for option in found})
    about = passed.group(1) if passed else ""
    return Declaration("\n".join(lines), arguments, required, options, about)


def _option(name: str, kind: str, text: str) -> Option:
    default = _DEFAULT.search(text)
    return Option(name, kind, (default.group(1) if default else "") if kind else "0")


def check_value(option: Option, value: str) -> None:
    """Check a value.

    Raises:
        Mistake: it is not what the option expects.
    """
    if not value.strip():
        raise Mistake(f"{option.name} '{value}': is empty; leave it out, or give a value")
    kind, several, _ = option.kind.partition(" ...")
    for word in value.split() if several else [value]:
        if "|" in kind and word not in kind.split("|"):
            *names, last = kind.split("|")
            raise Mistake(f"{option.name} {word}: expected {', '.join(names)} or {last}")
        pattern, expected = _KINDS.get(kind, ("(?s).*", ""))
        if not re.fullmatch(pattern, word):
            raise Mistake(f"{option.name} {word}: expected {expected}")


def assignments(declared: Declaration, words: Sequence[str]) -> str:
    """The assignments that a script evaluates.

    Raises:
        Mistake: an argument is wrong or missing.
    """
    given: Dict[str, str] = {}
    plain: List[str] = []
    extra: List[str] = []
    rest = list(words)
    about = f"{declared.passed} go after --" if declared.passed else "see --help"
    while rest:
        word = rest.pop(0)
        if word == "--help":
            return f"printf '%s\\n' {shlex.quote(declared.text)}\nexit 0"
        if word == "--" and declared.passed:
            extra, rest = rest, []
        elif word in declared.options:
            option = declared.options[word]
            if option.kind:
                if not rest:
                    raise Mistake(f"{word} needs a value; see --help")
                check_value(option, rest[0])
            given[word] = rest.pop(0) if option.kind else "1"
        elif word.startswith("-"):
            known = f"see --help ({about})" if declared.passed else "see --help"
            raise Mistake(f"{word}: unknown option; {known}")
        else:
            plain.append(word)
    lines = _arguments(declared, plain, about)
    for name in declared.required:
        if name not in given:
            raise Mistake(f"give {name}; see --help")
    pairs = ""
    for option in declared.options.values():
        value = given.get(option.name, option.default)
        lines.append(f"{option.variable}={shlex.quote(value)}")
        if option.name in given:
            spelled = shlex.join([option.name, value] if option.kind else [option.name])
            pairs += f"[{option.name}]={shlex.quote(spelled)} "
    lines += [f"EXTRA=({shlex.join(extra)})", f"ARGUMENTS=({shlex.join(words)})"]
    return "\n".join([*lines, f"declare -gA GIVEN=({pairs})"])


def _arguments(declared: Declaration, words: List[str], about: str) -> List[str]:
    names = [name.strip("[]") for name in declared.arguments]
    needed = [name for name in declared.arguments if not name.startswith("[")]
    if len(words) < len(needed):
        raise Mistake(f"give {' '.join(needed[len(words) :]).replace('...', '')}; see --help")
    lines = []
    for name in names:
        if name.endswith("..."):
            lines.append(f"{name[:-3]}=({shlex.join(words)})")
            words = []
        else:
            word = words.pop(0) if words else ""
            word = word.rstrip("/") or word
            if name == "ARCH":
                check_value(Option(name, "NAME", ""), word)
            lines.append(f"{name}={shlex.quote(word)}")
    if words:
        raise Mistake(f"{words[0]}: unexpected argument; {about}")
    return lines


def fail(script: str, message: str) -> NoReturn:
    """Print a mistake as the script's own, and end."""
    sys.exit(f"{os.path.basename(script)}: error: {message}")


def main(words: Sequence[str]) -> None:
    """Read the arguments of a script, or name its options."""
    if words[0] == "--names":
        names = declaration_of(words[1]).options
        print(*(name for name in names if name not in ("--help", "--dry-run")), sep="\n")
        return
    script, *arguments = words
    try:
        print(assignments(declaration_of(script), arguments))
    except Mistake as mistake:
        fail(script, str(mistake))


if __name__ == "__main__":
    main(sys.argv[1:])
