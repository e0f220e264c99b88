"""Reading the JSON objects of settings; imports neither PyTorch nor fairseq."""

import json
from typing import Any, Dict

from fairseq_posenc.basics.errors import UsageError


def read_json_object(
    path: str, subject: str, advice: str = "give a file that can be read"
) -> Dict[str, Any]:
    """Read a JSON object.

    Args:
        path: its file.
        subject: the file, at the start of messages.
        advice: what to do if there is no such file.

    Raises:
        UsageError: it cannot be read or is not a JSON object.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{subject} cannot be read ({reason}); {advice}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{subject} is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise UsageError(f"{subject} holds no JSON object")
    return content
