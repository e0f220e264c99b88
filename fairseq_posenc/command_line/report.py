"""One-line messages for errors of fairseq's commands, which suggest the nearest existing name."""

import argparse
import sys
from functools import partial
from typing import Any, Callable, List, Mapping, NoReturn, Optional, Sequence

from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_posenc.basics.errors import UsageError, flag_of, flags_of_parser, one_line
from fairseq_posenc.command_line.checks import LIMITS, allow_bfloat16, check_machine, take_limits
from fairseq_posenc.command_line.failures import explained
from fairseq_posenc.configuration.fields import plug_in_flags
from fairseq_posenc.flags.values import check_values
from fairseq_posenc.models import FAMILIES, Family, family_of


def parse_error(message: str, parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """The line that replaces an error of one of fairseq's parsers; see :func:`one_line`."""
    arch, ours = _value_of(("--arch", "-a"), words), [flag_of(name) for name in plug_in_flags()]
    unknown = message.partition("unrecognized arguments: ")[2].split()
    flags = [word.partition("=")[0] for word in unknown if word.startswith("--")]
    for flag in sorted(flags, key=lambda flag: flag not in ours):  # the plug-in's flags first
        having = [each for each in FAMILIES.values() if flag in _flags_of(each)]
        if having:
            return f"{flag}: {_where_it_belongs(flag, having, arch)}"
    return one_line(message, flags_of_parser(parser), words)


def _flags_of(family: Family) -> Sequence[str]:
    parser = argparse.ArgumentParser()  # add_args skips fields that the task also has
    family.add_args(parser)
    return flags_of_parser(parser)


def _where_it_belongs(flag: str, having: Sequence[Family], arch: Optional[str]) -> str:
    """Advice on a *flag* that models *having* accept but *arch* (None without --arch) does not."""
    if arch is None:
        name = flag[2:].replace("-", "_")
        return (
            "belongs to the model, so the checkpoint sets its value; if it may be changed, give "
            f"--model-overrides \"{{'{name}': VALUE}}\""
        )
    if family_of(arch) is None:
        instead = _instead_of(arch)
        known = instead in [family.model for family in having]
        use = f"give --arch {instead}, which is {arch} with this flag" if known else "drop it"
        return f"--arch {arch} is fairseq's own and has no such flag; {use}"
    models = " or ".join(f"{family.what} (--arch {family.model})" for family in having)
    return f"--arch {arch} has no such flag; drop it, or train {models}"


def _value_of(flags: Sequence[str], words: Sequence[str]) -> Optional[str]:
    for word, following in zip(words, [*words[1:], None]):
        name, equals, value = word.partition("=")
        if name in flags:
            return value if equals else following
    return None


def _instead_of(arch: str) -> Optional[str]:
    """The model of the plug-in that adds position encodings to fairseq's *arch*, or None."""
    stock = ARCH_MODEL_REGISTRY.get(arch)
    for family in FAMILIES.values():
        bases = (base for base in family.class_.__mro__ if base.__module__.startswith("fairseq."))
        if stock is not None and issubclass(stock, next(bases)):
            return family.model
    return None


def parse_in_one_line(parse_args_and_arch: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``parse_args_and_arch``: report parsing errors, and known later errors, on one line."""

    def wrapper(
        parser: Any, input_args: Optional[List[str]] = None, *args: Any, **kwargs: Any
    ) -> Any:
        if "error" in vars(parser):  # fairseq calls this function recursively
            return parse_args_and_arch(parser, input_args, *args, **kwargs)
        words = [str(word) for word in (sys.argv[1:] if input_args is None else input_args)]

        def error(message: str) -> NoReturn:
            raise UsageError(parse_error(message, parser, words))

        parser.error = error
        try:
            parsed = parse_args_and_arch(parser, input_args, *args, **kwargs)
        except SyntaxError as wrong:  # from fairseq's parser of lists, not from argparse
            text = (wrong.text or "").strip()
            given = [f"{flag} " for flag, value in zip(words, words[1:]) if value.strip() == text]
            raise UsageError(
                f"{''.join(given[:1])}{text}: expected a number, or a list such as [1e-3,5e-4]"
            ) from wrong
        except RuntimeError as wrong:
            if wrong.args:  # without --arch, fairseq raises it without a text
                raise
            raise UsageError("--arch: required; see `fairseq-posenc list`") from wrong
        except KeyError as wrong:
            if wrong.args != (None,):  # without --task, fairseq looks up None
                raise
            raise UsageError("--task: required; give the task of the training") from wrong
        finally:
            del parser.error
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed
        check_values(namespace)
        take_limits(namespace, [x for x in LIMITS if _value_of((flag_of(x),), words) is None])
        allow_bfloat16(namespace)
        if input_args is None:  # to run here; studies also parse commands for other machines
            check_machine(namespace)
            sys.excepthook = partial(_show, vars(namespace))
        return parsed

    return wrapper


def _show(flags: Mapping[str, Any], kind: Any, error: BaseException, trace: Any) -> None:
    """As ``sys.excepthook``: print one line for a known error of a command with *flags*."""
    known = explained(error, flags)
    if known is None:
        sys.__excepthook__(kind, error, trace)
    else:
        print(known, file=sys.stderr)


def fail_in_one_line(is_env_set: Callable[[str], bool]) -> Callable[[str], bool]:
    """Wrap Hydra's ``_is_env_set`` to report known errors on one line, without a traceback.

    Hydra's ``run_and_report`` calls that function first when it has caught an exception.
    """

    def wrapper(name: str) -> bool:
        error = sys.exc_info()[1]
        known = None if error is None else explained(error, {})
        if known is not None:
            raise known from None
        return is_env_set(name)

    return wrapper
