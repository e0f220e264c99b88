# shellcheck shell=bash
# What texts are split by, for the prepare.sh of recipes; sourced after lib.sh. TOKENIZER is the
# folder of a tokenizer of transformers, of a model or learned as byte-level BPE; or it is empty, and
# SUBWORDS may be sentencepiece, or marked-words, of words.py.

# Check the value of --tokenizer, and make it absolute.
check_tokenizer() {
    [[ -n $TOKENIZER ]] || return 0
    ((DRY_RUN)) || [[ -f $TOKENIZER/vocab.txt || -f $TOKENIZER/tokenizer.json ]] ||
        die "--tokenizer $TOKENIZER: has neither vocab.txt nor tokenizer.json"
    TOKENIZER=$(absolute "$TOKENIZER")
}

# The tokenizer's files; in a dry run, those that byte_bpe.py would write.
tokenizer_files() {
    local name
    if ((DRY_RUN)) && [[ ! -d $TOKENIZER ]]; then
        printf '%s\n' "$TOKENIZER"/tokenizer{,_config}.json
        return
    fi
    for name in vocab.txt tokenizer.json tokenizer_config.json config.json; do
        [[ ! -f $TOKENIZER/$name ]] || printf '%s\n' "$TOKENIZER/$name"
    done
}

# A digest of them, for STEP_CHAIN.
tokenizer_digest() {
    tokenizer_files | while IFS= read -r file; do sha256sum <"$file"; done
}

# Call the command that writes $1 with the further arguments.
write_tokens() {
    run mkdir -p "$(dirname "$1")"
    shift
    run fairseq-posenc tokenize "$@"
}

# Split text $2 into symbols $3; $1 is the name of the step.
tokens_step() {
    step "tokens-$1" "$3" -- write_tokens "$3" "$TOKENIZER" "$2" "$3"
}

# Write the tokenizer's dict.txt to $1.
dictionary_step() {
    step dictionary "$1" -- write_tokens "$1" "$TOKENIZER" --dictionary "$1"
}

# Split the documents of a pre-training recipe into symbols in folder $1; SPLITS names them.
by_tokenizer() {
    local split
    ((DRY_RUN)) || STEP_CHAIN+=$(tokenizer_digest)$'\n'
    for split in "${SPLITS[@]}"; do
        tokens_step "$split" "$OUT/documents/$split" "$1/$split"
    done
    dictionary_step "$OUT/bpe/dict.txt"
}

# Keep what texts were split by in data folder $1: the tokenizer's files, or that of $OUT/bpe.
keep_splitting() {
    local files=() name
    name=$(splitting_kept)
    if [[ -z $TOKENIZER ]]; then
        run cp "$OUT/bpe/${name#bpe.}" "$1/$name"
        return
    fi
    mapfile -t files < <(tokenizer_files)
    run mkdir -p "$1/tokenizer"
    run cp "${files[@]}" "$1/tokenizer"
}

# Its name there.
splitting_kept() {
    if [[ -n $TOKENIZER ]]; then printf tokenizer; else subword_file "${SUBWORDS:-}"; fi
}

# The name of the file of subwords of a kind, where it is no tokenizer.
subword_file() {
    case $1 in
        sentencepiece) printf sentencepiece.model ;;
        marked-words) printf words.txt ;;
        *) printf bpe.codes ;;
    esac
}

# What the file text of a data folder says: recorded lang|keep-case|segmenter|kind|subwords FILE
recorded() {
    [[ ! -f $2 ]] || awk -v name="$1" '$1 == name { print $2 }' "$2"
}

# Set TEXT_FLAGS to what `fairseq-posenc pack` has to know of the text of data folder $1.
text_flags() {
    local data=$1 kind segmenter file
    kind=$(recorded kind "$data/text")
    TEXT_FLAGS=()
    if [[ $kind == text8 || $kind == enwik8 ]]; then
        TEXT_FLAGS=(--subwords "$kind")
        return
    fi
    file=$data/$(subword_file "$(recorded subwords "$data/text")")
    if ((!DRY_RUN)) && [[ ! -f $file && ! -d $data/tokenizer ]]; then
        [[ $kind == wikitext ]] ||
            log "$data: does not say how text was split; the model folder will split it at spaces"
        return 0
    fi
    if [[ -d $data/tokenizer ]]; then
        TEXT_FLAGS=(--subwords transformers --subword-file "$data/tokenizer")
        return
    fi
    segmenter=$(recorded segmenter "$data/text")
    case ${file##*/}$segmenter in
        words.txtspaces) TEXT_FLAGS=(--tokenizer none --subwords marked-words) ;;
        words.txt*) TEXT_FLAGS=(--tokenizer "$segmenter" --subwords marked-words) ;;
        sentencepiece.model) TEXT_FLAGS=(--tokenizer none --subwords sentencepiece) ;;
        bpe.codes) TEXT_FLAGS=(--tokenizer moses --source-lang "$(recorded lang "$data/text")"
            --subwords subword-nmt) ;;
        *spaces) TEXT_FLAGS=(--tokenizer none --subwords marked-pieces) ;;
        *) TEXT_FLAGS=(--tokenizer "$segmenter" --subwords marked-pieces) ;;
    esac
    TEXT_FLAGS+=(--subword-file "$file")
    [[ -n $(recorded keep-case "$data/text") ]] || TEXT_FLAGS+=(--lowercase)
}

# Write model folder $2, which flag $1 can change, of checkpoint $3, trained on data folder $4 with
# --user-dir USER_DIR; $5 is a sentence on the data, and further arguments are flags for
# `fairseq-posenc pack`.
pack_trained() {
    local flag=$1 folder=$2 checkpoint=$3 data=$4 about=$5
    shift 5
    ((${NODE_RANK:-0} == 0)) || return 0
    text_flags "$data"
    [[ ${USER_DIR##*/} == fairseq_posenc ]] || TEXT_FLAGS+=(--user-dir "$USER_DIR")
    pack_model "$flag" "$folder" "$checkpoint" --data "$data" --ctranslate2 no "${TEXT_FLAGS[@]}" \
        --about "$about" "$@"
}
