#!/usr/bin/env bash
# Masked language models: raw text to binarised data in FULL-SENTENCES form.
#
#   prepare.sh TEXT_DIR OUT [options]
#
# TEXT_DIR holds train.txt, valid.txt and perhaps test.txt: one sentence or paragraph per
# line, blank lines between documents. OUT/data-bin is then what train.sh takes, and what
# examples/glue/prepare.sh needs to prepare its texts alike. If interrupted, run it
# again to resume; a changed option repeats only the steps that depend on it.
#
#   --wikitext            the texts are WikiText's: documents begin at " = Heading = "
#   --keep-case           do not lower-case (default: lower case, as in the TUPE paper)
#   --lang LANG           language for the Moses tokeniser (en)
#   --bpe-operations N    merges of the BPE (32678)
#   --tokenizer FOLDER    instead of --lang and --bpe-operations: split the texts as this
#                         tokenizer of transformers does, which lower-cases by itself
#   --max-line N          break longer lines (in BPE tokens), at the end of a sentence
#                         where possible (510: with <s> and </s> that makes 512)
#   --workers N           worker processes (all cores)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/tokens.sh
. "$COMMON/tokens.sh"

TEXT="" OUT="" WIKITEXT="" KEEP_CASE="" TEXT_LANG=en OPERATIONS=32678 MAX_LINE=510
TOKENIZER=""
WORKERS=$(nproc)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --wikitext) WIKITEXT=$1; shift ;;
        --keep-case) KEEP_CASE=$1; shift ;;
        --lang) TEXT_LANG=$(value "$@"); shift 2 ;;
        --bpe-operations) OPERATIONS=$(value "$@"); shift 2 ;;
        --tokenizer) TOKENIZER=$(value "$@"); shift 2 ;;
        --max-line) MAX_LINE=$(value "$@"); shift 2 ;;
        --workers) WORKERS=$(value "$@"); shift 2 ;;
        -*) die "$1: unknown option; see --help" ;;
        *)
            [[ -z $OUT ]] || die "$1: unexpected argument; see --help"
            if [[ -z $TEXT ]]; then TEXT=$1; else OUT=$1; fi
            shift ;;
    esac
done
[[ -n $OUT ]] || die "give the folder of the texts and the folder to write to; see --help"
whole_number --bpe-operations "$OPERATIONS"
whole_number --max-line "$MAX_LINE"
whole_number --workers "$WORKERS"
[[ $TEXT_LANG =~ ^[a-z]{2,3}$ ]] || die "--lang $TEXT_LANG: expected a code such as en"
export WORKERS
check_tokenizer
[[ -z $TOKENIZER ]] || KEEP_CASE=--keep-case
need python fairseq-preprocess

TEXT=$(absolute "$TEXT") OUT=$(absolute "$OUT")
STEPS=$OUT/steps
SPLITS=(train valid)
[[ ! -f $TEXT/test.txt ]] || SPLITS+=(test)
for split in "${SPLITS[@]}"; do
    ((DRY_RUN)) || [[ -f $TEXT/$split.txt ]] || die "$TEXT/$split.txt: no such file"
    ((DRY_RUN)) || STEP_CHAIN+="$split $(sha256sum <"$TEXT/$split.txt")"$'\n'
done
hold "$OUT"

for split in "${SPLITS[@]}"; do
    step "documents-$split" "$OUT/documents/$split" -- \
        python "$RECIPE/documents.py" ${WIKITEXT:+"$WIKITEXT"} \
        ${KEEP_CASE:+"$KEEP_CASE"} "$TEXT/$split.txt" "$OUT/documents/$split"
done
by_bpe() {
    local split
    for split in "${SPLITS[@]}"; do
        step "tokenize-$split" "$OUT/tokens/$split" -- \
            python "$COMMON/moses.py" tokenize --lang "$TEXT_LANG" \
            "$OUT/documents/$split" "$OUT/tokens/$split"
    done
    step learn-bpe "$OUT/bpe/codes" -- \
        python "$COMMON/bpe.py" learn --operations "$OPERATIONS" "$OUT/bpe/codes" \
        "$OUT/tokens/train"
    for split in "${SPLITS[@]}"; do
        step "apply-bpe-$split" "$OUT/bpe/$split" -- \
            python "$COMMON/bpe.py" apply "$OUT/bpe/codes" "$OUT/tokens/$split" "$OUT/bpe/$split"
    done
}
if [[ -n $TOKENIZER ]]; then by_tokenizer "$OUT/bpe"; else by_bpe; fi
for split in "${SPLITS[@]}"; do
    step "fold-$split" "$OUT/lines/$split" -- python "$RECIPE/fold.py" --max-tokens "$MAX_LINE" \
        "$OUT/bpe/$split" "$OUT/lines/$split"
done

binarize() {
    local part=$OUT/data-bin.part split prefixes=()
    for split in "${SPLITS[@]}"; do
        prefixes+=("--${split}pref" "$OUT/lines/$split")
    done
    run rm -rf "$part"
    [[ -z $TOKENIZER ]] || prefixes+=(--srcdict "$OUT/bpe/dict.txt")
    run fairseq-preprocess --only-source "${prefixes[@]}" --destdir "$part" --workers "$WORKERS"
    # Record how these texts were prepared: fine-tuning has to do the same.
    keep_splitting "$part"
    ((DRY_RUN)) || printf 'lang %s\nkeep-case %s\n' "$TEXT_LANG" "$KEEP_CASE" >"$part/text"
    run rm -rf "$OUT/data-bin"
    run mv "$part" "$OUT/data-bin"
}
step binarize "$OUT"/data-bin/{{train,valid}.{bin,idx},dict.txt,"$(splitting_kept)",text} -- binarize

log "data for train.sh: $OUT/data-bin"
