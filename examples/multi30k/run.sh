#!/usr/bin/env bash
# Multi30k English-German: one architecture from raw text to BLEU, small enough for a CPU.
#
#   run.sh DATA_DIR OUT_DIR ARCH [options] [-- flags for fairseq-train]
#
# DATA_DIR holds {train,val,test_2016_flickr}.{en,de}; if the folder does not exist, they are
# downloaded. ARCH is any architecture for translation, including fairseq's; all get
# the same size, data order and budget. Results go to OUT_DIR/NAME. If interrupted, run it
# again to resume. Several architectures can share OUT_DIR, even at the same time.
#
#   --name NAME           folder of this run (ARCH-seedSEED)
#   --seed N              seed of fairseq-train (1)
#   --epochs N            passes over the training data (12)
#   --average N           number of last epoch checkpoints to average (5)
#   --bpe-operations N    merges of the joint BPE (6000)
#   --checksums FILE      for a download: sha256sum-style list that overrides all others
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

DATA="" OUT="" ARCH="" NAME="" CHECKSUMS="" USER_DIR=""
SEED=1 EPOCHS=12 AVERAGE=5 OPERATIONS=6000
KEPT=10  # epoch checkpoints to keep, so that --average can be changed afterwards
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --name) NAME=$(value "$@"); shift 2 ;;
        --seed) SEED=$(value "$@"); shift 2 ;;
        --epochs) EPOCHS=$(value "$@"); shift 2 ;;
        --average) AVERAGE=$(value "$@"); shift 2 ;;
        --bpe-operations) OPERATIONS=$(value "$@"); shift 2 ;;
        --checksums) CHECKSUMS=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --) shift; break ;;
        -*) die "$1: unknown option; see --help (flags for fairseq-train go after --)" ;;
        *)
            [[ -z $ARCH ]] || die "$1: unexpected argument; flags for fairseq-train go after --"
            if [[ -z $DATA ]]; then DATA=$1; elif [[ -z $OUT ]]; then OUT=$1; else ARCH=$1; fi
            shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $ARCH ]] || die "give the data folder, the output folder and the architecture; see --help"
whole_number --seed "$SEED"
whole_number --epochs "$EPOCHS"
whole_number --average "$AVERAGE"
whole_number --bpe-operations "$OPERATIONS"
((AVERAGE <= (EPOCHS < KEPT ? EPOCHS : KEPT))) ||
    die "--average $AVERAGE: there are $EPOCHS epochs, and the last $KEPT checkpoints are kept"
NAME=${NAME:-$ARCH-seed$SEED}
plain_name --name "$NAME"
[[ $NAME != data ]] || die "--name data: is the folder of the data; give another name"
need python fairseq-preprocess fairseq-train fairseq-generate

DATA=$(absolute "$DATA") OUT=$(absolute "$OUT")
USER_DIR=${USER_DIR:-$(plugin_dir)}
WORK=$OUT/data
RUN=$OUT/$NAME

# ---- data, the same for all runs in OUT_DIR

hold "$RUN"
hold "$WORK" wait
if [[ ! -e $DATA ]]; then
    log "$DATA: no such folder; downloading"
    run "$RECIPE/download.sh" "$DATA" ${CHECKSUMS:+--checksums "$CHECKSUMS"}
fi
declare -A TEXTS=([train]=train [valid]=val [test]=test_2016_flickr)
for lang in en de; do
    for split in train valid test; do
        text=$DATA/${TEXTS[$split]}.$lang
        ((DRY_RUN)) || [[ -f $text ]] ||
            die "$text: no such file; $RECIPE/download.sh fetches the data into a new folder"
        ((DRY_RUN)) || STEP_CHAIN+="$split.$lang $(sha256sum <"$text")"$'\n'
    done
done

((DRY_RUN)) || (cd "$DATA" && sha256sum --status --check "$RECIPE/texts.sha256") ||
    log "$DATA: not the texts used for the table in README.md; scores will differ"

binarize() {
    local part=$WORK/data-bin.part
    run rm -rf "$part"
    run fairseq-preprocess --source-lang en --target-lang de --joined-dictionary \
        --trainpref "$WORK/bpe/train" --validpref "$WORK/bpe/valid" \
        --testpref "$WORK/bpe/test" --destdir "$part"
    run rm -rf "$WORK/data-bin"
    run mv "$part" "$WORK/data-bin"
}

prepare() {
    local lang split
    STEPS=$WORK/steps
    for lang in en de; do
        for split in train valid test; do
            step "tokenize-$split.$lang" "$WORK/tokens/$split.$lang" -- \
                python "$COMMON/moses.py" tokenize --lang "$lang" \
                "$DATA/${TEXTS[$split]}.$lang" "$WORK/tokens/$split.$lang"
        done
    done
    step learn-bpe "$WORK/bpe/codes" -- \
        python "$COMMON/bpe.py" learn --operations "$OPERATIONS" "$WORK/bpe/codes" \
        "$WORK/tokens/train.en" "$WORK/tokens/train.de"
    for lang in en de; do
        for split in train valid test; do
            step "apply-bpe-$split.$lang" "$WORK/bpe/$split.$lang" -- \
                python "$COMMON/bpe.py" apply "$WORK/bpe/codes" \
                "$WORK/tokens/$split.$lang" "$WORK/bpe/$split.$lang"
        done
    done
    step binarize "$WORK"/data-bin/{dict.{en,de}.txt,{train,valid,test}.en-de.{en,de}.{bin,idx}} \
        -- binarize
}

prepare
release

# ---- training

TRAIN=("$WORK/data-bin" --user-dir "$USER_DIR" --task translation
    --source-lang en --target-lang de --arch "$ARCH" --share-all-embeddings
    --encoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
    --encoder-attention-heads 4
    --decoder-layers 3 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256
    --decoder-attention-heads 4
    --dropout 0.2 --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0
    --lr 3e-3 --lr-scheduler inverse_sqrt --warmup-init-lr 1e-7 --warmup-updates 1000
    --max-tokens 2048 --required-batch-size-multiple 1 --num-workers 0 --seed "$SEED"
    --keep-last-epochs "$KEPT"
    --log-format simple --log-interval 100 --log-file "$RUN/train.log" "$@")

# A larger --epochs is allowed.
same_run --name "$RUN" "${TRAIN[@]}"
TIMEFORMAT="training took %R s (processor time %U s)"
time train_model "$RUN" "${TRAIN[@]}" --max-epoch "$EPOCHS"

# ---- test; an earlier command may have trained longer

run fairseq-posenc average --inputs "$RUN" \
    --num-epoch-checkpoints "$AVERAGE" --checkpoint-upper-bound "$EPOCHS" \
    --output "$RUN/average$AVERAGE.pt"
# Without --required-batch-size-multiple 1, fairseq main and its fork drop up to 7 sentences.
run fairseq-generate "$WORK/data-bin" --user-dir "$USER_DIR" --task translation \
    --source-lang en --target-lang de --path "$RUN/average$AVERAGE.pt" --gen-subset test \
    --beam 4 --lenpen 0.6 --remove-bpe --max-tokens 4000 --required-batch-size-multiple 1 \
    --results-path "$RUN"
run python "$COMMON/score.py" --lang de --reference "$DATA/test_2016_flickr.de" \
    --tokenized-reference "$WORK/tokens/test.de" --json "$RUN/scores.json" \
    "$RUN/generate-test.txt"

# ---- all that raw text needs, for `fairseq-posenc translate`

pack_model "$RUN/model" "$RUN/average$AVERAGE.pt" --data "$WORK/data-bin" \
    --tokenizer moses --subwords subword-nmt --subword-file "$WORK/bpe/codes" \
    --about "Multi30k English-German, $EPOCHS epochs." --scores "$RUN/scores.json"
