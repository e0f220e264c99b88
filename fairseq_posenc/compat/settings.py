"""Settings that fairseq passes to ``eval`` are parsed, not run; ``--user-dir`` takes any path."""

import ast
import operator
import os
import sys
from typing import Any, Callable, Dict

from fairseq_posenc.basics.errors import UsageError

_HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_LONGEST = 10_000  # entries of a repeated list, at most
_OPERATORS: Dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def settings_are_values() -> None:
    """Give the modules of fairseq an ``eval`` that computes only literals and arithmetic.

    fairseq builds convolutions of a language model by ``eval(args.character_filters)``, and all
    layers of convolutional models likewise; ``args`` may come from a checkpoint.  ``weights_only``
    does not help, because such a setting is plain text.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli") and module is not None:
            vars(module).setdefault("eval", value_of)


def value_of(text: str) -> Any:
    """The value of an expression of literals and arithmetic.

    >>> value_of("[(512, 3)] * 2 + [(256, 1)]")
    [(512, 3), (512, 3), (256, 1)]

    Raises:
        TypeError: *text* is not a string; fairseq expects this error from ``eval``.
        UsageError: *text* is any other kind of expression.
    """
    if not isinstance(text, str):
        raise TypeError(f"value_of() takes a string, not {text!r}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ArithmeticError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        raise UsageError(
            f"the setting {text!r}: expected numbers, strings, lists and their sums and products, "
            "such as [(512, 3)] * 4; settings are not run as code"
        ) from error


def _value(node: ast.AST) -> Any:
    operation = _OPERATORS.get(type(getattr(node, "op", node)))
    if isinstance(node, ast.BinOp) and operation:
        left, right = _value(node.left), _value(node.right)
        for items, times in ((left, right), (right, left)):
            if hasattr(items, "__len__") and isinstance(times, int):
                if len(items) * times > _LONGEST:
                    raise ValueError("too long")
        return operation(left, right)
    if isinstance(node, ast.UnaryOp) and operation:
        return operation(_value(node.operand))
    if isinstance(node, (ast.List, ast.Tuple)):
        return (list if isinstance(node, ast.List) else tuple)(map(_value, node.elts))
    return ast.literal_eval(node)


def user_dir_twice(import_user_module: Callable[[Any], None]) -> Callable[[Any], None]:
    """Accept a ``--user-dir`` that names the imported plug-in by any path.

    fairseq (issues 2815 and 4875) compares paths as text, so a symbolic link to the imported folder
    fails as "not globally unique", with a traceback.  A second copy of the plug-in in another
    folder remains an error, reported on one line, because only one copy can run.
    """

    def wrapper(args: Any) -> None:
        given = getattr(args, "user_dir", None)
        if given is None:
            return import_user_module(args)
        folder = os.path.realpath(given)
        if folder == _HERE:
            return None
        if os.path.basename(folder) == os.path.basename(_HERE) and os.path.isdir(folder):
            raise UsageError(
                f"--user-dir {given}: another copy of this plug-in is imported already, from "
                f"{_HERE}; give that folder, or uninstall that copy or take it off PYTHONPATH"
            )
        return import_user_module(args)

    return wrapper
