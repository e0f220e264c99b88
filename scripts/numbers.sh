#!/usr/bin/env bash
# The numbers of README.md, for a release: print what it says, run the command that finds it again.
#
#   numbers.sh [options]
#
# A command that this machine cannot run, or that takes hours, is printed and not run.
#
#   --only quickstart|studies|gpu|all  whose numbers (all)
#   --hours           run the studies, too, on the data that examples/study/README.md prepares
#   options of ../examples/common/steps.sh --dry-run --help

set -euo pipefail
SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$SCRIPTS/../examples/common/steps.sh"
parse "$@"
cd "$REPO"
PLANNED=$DRY_RUN

# says NAME WORDS [CONDITION...]: print the paragraphs of README.md that have the WORDS, or fail if
# other numbers were asked for; without the CONDITION, commands are printed only.
says() {
    [[ $ONLY == all || $ONLY == "$1" ]] || return 1
    awk -v RS= -v words="$2" 'index($0, words) { print "\n" $0 }' README.md
    DRY_RUN=$PLANNED
    "${@:3}" >/dev/null 2>&1 || DRY_RUN=1
}

if says quickstart 'sacreBLEU of'; then
    run scripts/quickstart.sh
fi
if says studies seeds test "$HOURS" = 1; then
    export OMP_NUM_THREADS=1
    for plan in multi30k masked_lm language_model; do
        run snakemake -s examples/study/Snakefile -c 2 --config "plan=examples/study/$plan.yaml"
    done
fi
if says gpu 'one H100' nvidia-smi -L; then
    run scripts/gpu_tables.sh runs/gpu --only training-float16,training-bfloat16,generation-float16
fi
