#!/usr/bin/env bash
# CLUE: predictions for the test sets, as CLUE's site takes them.
#
#   submit.sh DATA MODELS OUT [options]
#
# Calls examples/glue/submit.sh, which is the same for all tasks: see its --help for options.
#
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/steps.sh
. "$RECIPE/../common/steps.sh"
own_help "$@"
exec "$RECIPE/../glue/submit.sh" "$@"
