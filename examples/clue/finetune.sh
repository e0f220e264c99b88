#!/usr/bin/env bash
# CLUE: fine-tune a pre-trained model on a task, with the settings of the GAU paper.
#
#   finetune.sh TASK CHECKPOINT OUT [options] [-- flags for fairseq-train]
#
# TASK is a folder that prepare.sh made (clue/TNEWS), CHECKPOINT the result of pre-training. Epochs,
# batch, learning rate and warm-up are those of Table 6. Everything else is as in
# examples/glue/finetune.sh, which this calls with --paper gau: see its --help for options.

set -euo pipefail
exec "$(dirname "$0")/../glue/finetune.sh" --paper gau "$@"
