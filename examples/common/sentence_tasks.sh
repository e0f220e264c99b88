# shellcheck shell=bash
# Shared by the prepare.sh of glue and clue; sourced after lib.sh.

# shellcheck source=tokens.sh
. "$COMMON/tokens.sh"

# Options and folders: sets SOURCE, PRETRAINED, OUT, TASKS, TOKENIZER and WORKERS.
#   sentence_options NAME ALL RECIPE "$@"
# NAME is the benchmark, ALL its tasks, RECIPE the pre-training recipe that makes PRETRAINED.
sentence_options() {
    local name=$1 all=$2 recipe=$3 task file
    shift 3
    SOURCE="" PRETRAINED="" OUT="" TASKS="" TOKENIZER="" WORKERS=$(nproc)
    while (($#)); do
        case $1 in
            --help) usage ;;
            --dry-run) DRY_RUN=1; shift ;;
            --tasks) TASKS=$(value "$@"); shift 2 ;;
            --tokenizer) TOKENIZER=$(value "$@"); shift 2 ;;
            --workers) WORKERS=$(value "$@"); shift 2 ;;
            -*) die "$1: unknown option; see --help" ;;
            *)
                [[ -z $OUT ]] || die "$1: unexpected argument; see --help"
                if [[ -z $SOURCE ]]; then SOURCE=$1
                elif [[ -z $PRETRAINED ]]; then PRETRAINED=$1
                else OUT=$1; fi
                shift ;;
        esac
    done
    [[ -n $OUT ]] || die "give the folders of $name, of the pre-training's data and of the output"
    whole_number --workers "$WORKERS"
    for task in $TASKS; do
        [[ " $all " == *" $task "* ]] || die "--tasks $task: expected some of $all"
        ((DRY_RUN)) || [[ -d $SOURCE/$task ]] ||
            die "--tasks $task: there is no folder $SOURCE/$task"
    done
    if [[ -z $TASKS ]]; then
        for task in $all; do
            [[ ! -d $SOURCE/$task ]] || TASKS+="$task "
        done
        [[ -n $TASKS ]] || die "$SOURCE: has no folder of a task ($all)"
    fi
    [[ -n $TOKENIZER || ! -d $PRETRAINED/tokenizer ]] || TOKENIZER=$PRETRAINED/tokenizer
    check_tokenizer
    local files=(dict.txt)
    [[ -n $TOKENIZER ]] || files+=(bpe.codes text)
    for file in "${files[@]}"; do
        ((DRY_RUN)) || [[ -f $PRETRAINED/$file ]] ||
            die "$PRETRAINED: no $file there; give the data-bin that examples/$recipe made," \
            "or, with --tokenizer, the folder of an imported model"
    done
    need python fairseq-preprocess
    export WORKERS
    SOURCE=$(absolute "$SOURCE") PRETRAINED=$(absolute "$PRETRAINED") OUT=$(absolute "$OUT")
    hold "$OUT"
}

# Refuse a tokenizer that is not the model's.
check_symbols() {
    local STEPS=$OUT/work/steps
    run mkdir -p "$STEPS"
    chain ""
    ((DRY_RUN)) || STEP_CHAIN+=$(tokenizer_digest)$'\n'
    dictionary_step "$OUT/work/dict.txt"
    ((DRY_RUN)) || cmp -s "$OUT/work/dict.txt" "$PRETRAINED/dict.txt" ||
        die "--tokenizer $TOKENIZER: its symbols are not those in $PRETRAINED/dict.txt; give the" \
            "tokenizer of that model"
}

# A digest of what texts are split by.
splitting() {
    if [[ -n $TOKENIZER ]]; then
        tokenizer_digest
        sha256sum <"$PRETRAINED/dict.txt"
    else
        cat "$PRETRAINED"/{dict.txt,bpe.codes} | sha256sum
    fi
}

# Binarise the texts of folder $1 into folder $2; further arguments go to fairseq-preprocess.
_preprocess() {
    local texts=$1 folder=$2 prefixes=("${VALID[@]/#/$1/}")
    shift 2
    run fairseq-preprocess --only-source --trainpref "$texts/train" \
        --validpref "$(IFS=, && printf '%s' "${prefixes[*]}")" --destdir "$folder" \
        --workers "$WORKERS" "$@"
}

# Binarise $WORK/pieces/INPUT, for INPUT in INPUTS, and the labels into $OUT/TASK.
#   binarize TASK classes|numbers
# VALID names the validation sets.
binarize() {
    local task=$1 labels=$2 input split
    local part=$OUT/$task.part
    run rm -rf "$part"
    for input in "${INPUTS[@]}"; do
        _preprocess "$WORK/pieces/$input" "$part/$input" --srcdict "$PRETRAINED/dict.txt"
    done
    if [[ $labels == numbers ]]; then
        run mkdir -p "$part/label"
        for split in train "${VALID[@]}"; do
            run cp "$WORK/text/label/$split" "$part/label/$split.label"
        done
    else
        _preprocess "$WORK/text/label" "$part/label"
    fi
    ((DRY_RUN)) || wc -l <"$WORK/text/label/train" >"$part/examples"
    run rm -rf "${OUT:?}/$task"
    run mv "$part" "$OUT/$task"
}

# The step that calls binarize, with the same arguments.
binarize_step() {
    local input split files=("$OUT/$1/examples" "$OUT/$1/label")
    for input in "${INPUTS[@]}"; do
        for split in train "${VALID[@]}"; do
            files+=("$OUT/$1/$input/$split".{bin,idx})
        done
    done
    step binarize "${files[@]}" -- binarize "$@"
}
