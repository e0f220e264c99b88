# shellcheck shell=bash
# The numbers of the papers for pre-training; sourced after steps.sh. Defines
#
#     paper_settings PAPER SIZE   print those of a paper for models of that size, base or large:
#                                 samples in an update, updates, warm-up, peak of the learning
#                                 rate, Adam's beta 2 and clip norm (0: no clipping)
#
# For all of them Adam's beta 1 is 0.9, its epsilon 1e-6, the weight decay 0.01, the decay linear to 0
# and dropout 0.1. Samples have 512 tokens.
#
# tupe: Table 1. roformer: section 4.2, which gives neither warm-up nor clipping (here TUPE's).
# roberta: Table 9. roberta-256, -2k and -8k: Table 3, which gives neither warm-up nor beta 2. Here
# the first has BERT's, as in section 2.4, the others those of Table 9. 31,250 updates are printed as
# 31K: so all three read as many samples, as the caption says.

PAPERS="\
tupe        base   256 1000000 10000 1e-4 0.999 1.0
roformer    base    64  100000  1000 1e-5 0.999 1.0
roberta     base  8192  500000 24000 6e-4 0.98  0.0
roberta     large 8192  500000 30000 4e-4 0.98  0.0
roberta-256 base   256 1000000 10000 1e-4 0.999 0.0
roberta-2k  base  2048  125000  6000 7e-4 0.98  0.0
roberta-8k  base  8192   31250  1500 1e-3 0.98  0.0"

paper_settings() {
    local paper shape numbers names="" found=""
    [[ $2 == base || $2 == large ]] || die "--size $2: expected base or large"
    while read -r paper shape numbers; do
        [[ " $names" == *" $paper "* ]] || names+="$paper "
        [[ $paper == "$1" ]] || continue
        [[ $shape == "$2" ]] || { found=1; continue; }
        printf '%s\n' "$numbers"
        return
    done <<<"$PAPERS"
    [[ -n $found ]] || die "--paper $1: expected one of ${names% }"
    die "--size $2: --paper $1 has numbers for base models only; --paper roberta has some"
}
