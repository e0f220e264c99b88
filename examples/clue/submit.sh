#!/usr/bin/env bash
# CLUE: predictions for the test sets, as CLUE's site takes them.
#
#   submit.sh DATA MODELS OUT [options]
#
# Calls examples/glue/submit.sh, which is the same for all tasks: see its --help for options.

set -euo pipefail
exec "$(dirname "$0")/../glue/submit.sh" "$@"
