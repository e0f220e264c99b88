# shellcheck shell=bash
# What texts are split by, for the prepare.sh of recipes; sourced after `parse`. TOKENIZER is the
# folder of a tokenizer of transformers, of a model or learned as byte-level BPE; or it is empty, and
# SUBWORDS may be sentencepiece, or marked-words. INPUTS are further files that a step reads.

INPUTS=()

# Check the value of --tokenizer, and make it absolute.
check_tokenizer() {
    [[ -n $TOKENIZER ]] || return 0
    ((DRY_RUN)) || [[ -f $TOKENIZER/vocab.txt || -f $TOKENIZER/tokenizer.json ]] ||
        die "--tokenizer $TOKENIZER: has neither vocab.txt nor tokenizer.json"
    TOKENIZER=$(absolute "$TOKENIZER")
}

# The tokenizer's files; in a dry run, those that byte-level BPE would write.
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

# Step $1 on the texts SPLITS of folder $2, which writes those of folder $3, also from the files INPUTS,
# by the command that follows; the texts and the files to write come last in it.
on_splits() {
    local name=$1 from=$2 to=$3 split texts=() outputs=() words=()
    shift 3
    for split in "${SPLITS[@]}"; do
        texts+=("$from/$split") outputs+=("$to/$split") words+=("$from/$split" "$to/$split")
    done
    step "$name" --inputs "${texts[@]}" "${INPUTS[@]}" --outputs "${outputs[@]}" -- "$@" "${words[@]}"
}

# Split the texts SPLITS of folder $1 into symbols in folder $2 by TOKENIZER, and write its dictionary.
by_tokenizer() {
    mapfile -t INPUTS < <(tokenizer_files)
    on_splits tokens "$1" "$2" fairseq-posenc tokenize "$TOKENIZER"
    step dictionary --inputs "${INPUTS[@]}" --outputs "$OUT/bpe/dict.txt" -- \
        fairseq-posenc tokenize "$TOKENIZER" --dictionary "$OUT/bpe/dict.txt"
}

# Learn byte-level BPE from $1 with flags $2..., kept and used as a tokenizer of transformers.
learn_byte_bpe() {
    local text=$1
    shift
    TOKENIZER=$OUT/bpe/tokenizer
    step learn-bpe --inputs "$text" --outputs "$TOKENIZER"/tokenizer{,_config}.json -- \
        fairseq-posenc learn-subwords byte-bpe "$@" "$TOKENIZER" "$text"
}

# Binarise the texts SPLITS of folder $1 into OUT/data-bin, with flags $3... for fairseq-preprocess; $2
# are lines on how they were prepared, which training and fine-tuning need to know, for its file text.
binarize() {
    local folder=$1 lines=$2 part split texts=() prefixes=() kept=() copies=() made=() name
    shift 2
    part=$(part "$OUT/data-bin")
    for split in "${SPLITS[@]}"; do
        texts+=("$folder/$split") prefixes+=("--${split}pref" "$folder/$split")
        made+=("$OUT/data-bin/$split".{bin,idx})
    done
    if [[ -n $TOKENIZER ]]; then
        mapfile -t kept < <(tokenizer_files)
        copies=('&&' mkdir -p "$part/tokenizer" '&&' cp "${kept[@]}" "$part/tokenizer")
        kept+=("$OUT/bpe/dict.txt") prefixes+=(--srcdict "$OUT/bpe/dict.txt")
    else
        name=$(subword_file "${SUBWORDS:-}")
        kept=("$OUT/bpe/${name#bpe.}") copies=('&&' cp "$OUT/bpe/${name#bpe.}" "$part/$name")
    fi
    ((DRY_RUN)) || { printf '%s\n' "$lines" >"$OUT/text.part" && mv "$OUT/text.part" "$OUT/text"; }
    step binarize --inputs "${texts[@]}" "${kept[@]}" "$OUT/text" --replaces "$OUT/data-bin" \
        --known-by text --option OUT --outputs "$OUT"/data-bin/{dict.txt,text} "${made[@]}" -- \
        fairseq-preprocess --only-source "${prefixes[@]}" "$@" \
        --destdir "$part" --workers "$WORKERS" "${copies[@]}" '&&' cp "$OUT/text" "$part/text"
    log "data for train.sh: $OUT/data-bin"
}

# Set SPLITS to the texts of folder $1 with ending $2, or in a dry run to those that have to be there.
find_splits() {
    local split
    SPLITS=(train valid)
    [[ ! -f $1/test$2 ]] || SPLITS+=(test)
    for split in "${SPLITS[@]}"; do
        ((DRY_RUN)) || [[ -f $1/$split$2 ]] || die "$1/$split$2: no such file"
    done
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
    local data=$1 symbols segmenter file
    symbols=$(recorded kind "$data/text")
    TEXT_FLAGS=()
    if [[ $symbols == text8 || $symbols == enwik8 ]]; then
        TEXT_FLAGS=(--subwords "$symbols")
        return
    fi
    file=$data/$(subword_file "$(recorded subwords "$data/text")")
    if ((!DRY_RUN)) && [[ ! -f $file && ! -d $data/tokenizer ]]; then
        [[ $symbols == wikitext ]] ||
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

# Write model folder SAVE_DIR/model of checkpoint_last.pt, trained on data folder $1 with --user-dir $2;
# $3 is a sentence on the data. With --check instead, refuse to replace another folder.
pack_trained() {
    local how=(--replaces "$SAVE_DIR/model" --known-by model.json --option=--save-dir)
    ((!${NODE_RANK:-0})) || return 0
    if [[ $1 == --check ]]; then
        ((DRY_RUN)) || step model --check "${how[@]}"
        return
    fi
    text_flags "$1"
    [[ ${2##*/} == fairseq_posenc ]] || TEXT_FLAGS+=(--user-dir "$2")
    step model --inputs "$SAVE_DIR/checkpoint_last.pt" --data "$1" "${how[@]}" -- \
        fairseq-posenc pack "$SAVE_DIR/checkpoint_last.pt" "$(part "$SAVE_DIR/model")" --data "$1" \
        --ctranslate2 no "${TEXT_FLAGS[@]}" --about "$3"
}
