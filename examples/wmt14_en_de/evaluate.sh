#!/usr/bin/env bash
# WMT14 English-German: average checkpoints, translate newstest2014, print the scores.
#
#   evaluate.sh DATA SAVE_DIR [options] [-- flags for fairseq-generate]
#
# DATA is the data-bin folder of prepare.sh, SAVE_DIR where train.sh put its checkpoints.
# Translations, scores.txt and scores.json go to SAVE_DIR/evaluate-test, a model folder for
# raw text to SAVE_DIR/model. The work is done by ../translation/evaluate.sh, all of whose
# options can be given; here, checkpoints of updates are averaged, and compound-split BLEU
# is printed, too.
#
#   --average N           number of last checkpoints to average (5; the Transformer paper's big
#                         model has 20)
#   --average-by NAME     updates: the last of train.sh's --save-every; epochs (updates)
#   --last-update N       the last of these updates (the newest)
#   --last-epoch N        average epochs, up to this one
#   --checkpoint FILE     translate with this checkpoint instead of an average
#   --subset NAME         test (newstest2014) or valid (newstest2013)
#   --beam N              beam size (4)
#   --lenpen X            length penalty (0.6)
#   --max-tokens N        tokens translated at once (8000)
#   --comet MODEL         also COMET: a checkpoint, or a name to download; needs unbabel-comet
#   --no-model            write no model folder
#   --cpu                 without GPU
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/steps.sh
. "$RECIPE/../common/steps.sh"

own_help "$@"
exec "$RECIPE/../translation/evaluate.sh" --average-by updates --compound-split \
    --about "WMT14 English-German." "$@"
