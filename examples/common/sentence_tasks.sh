# shellcheck shell=bash
# Shared by the prepare.sh of glue and clue; sourced after lib.sh.

# Options and folders: sets SOURCE, PRETRAINED, OUT, TASKS and WORKERS.
#   sentence_options NAME ALL RECIPE "$@"
# NAME is the benchmark, ALL its tasks, RECIPE the pre-training recipe that makes PRETRAINED.
sentence_options() {
    local name=$1 all=$2 recipe=$3 task file
    shift 3
    SOURCE="" PRETRAINED="" OUT="" TASKS="" WORKERS=$(nproc)
    while (($#)); do
        case $1 in
            --help) usage ;;
            --dry-run) DRY_RUN=1; shift ;;
            --tasks) TASKS=$(value "$@"); shift 2 ;;
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
    for file in dict.txt bpe.codes text; do
        ((DRY_RUN)) || [[ -f $PRETRAINED/$file ]] ||
            die "$PRETRAINED: no $file there; give the data-bin that examples/$recipe made"
    done
    need python fairseq-preprocess
    export WORKERS
    SOURCE=$(absolute "$SOURCE") PRETRAINED=$(absolute "$PRETRAINED") OUT=$(absolute "$OUT")
    hold "$OUT"
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
