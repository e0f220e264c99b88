# shellcheck shell=bash
# What texts are split by, for the prepare.sh of recipes; sourced after `parse`. OUT is the folder to
# write, and TOKENIZER that of a tokenizer of transformers, of a model or learned here; or it is empty.

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
    for name in vocab.txt tokenizer.json tokenizer_config.json config.json; do
        [[ ! -f $TOKENIZER/$name && (-d $TOKENIZER || $DRY_RUN == 0 || $name != tok*) ]] ||
            printf '%s\n' "$TOKENIZER/$name"
    done
}

# Set SPLITS to train, valid and perhaps test, and TEXT[SPLIT] to the first file in folder $1 with one of
# the names $2..., in which SPLIT stands for it; in a dry run, to the last of them if there is none.
find_texts() {
    local split name missing="$1: has neither $2 nor ${3:-}"
    (($# > 2)) || missing="$1/$2: no such file"
    declare -gA TEXT=()
    for split in train valid test; do
        for name in "${@:2}"; do
            [[ -n ${TEXT[$split]:-} || ! -f $1/${name//SPLIT/$split} ]] || TEXT[$split]=$1/${name//SPLIT/$split}
        done
        [[ -n ${TEXT[$split]:-} || $split == test ]] || ((DRY_RUN)) || die "${missing//SPLIT/$split}"
        [[ $split == test ]] || : "${TEXT[$split]:=$1/${name//SPLIT/$split}}"
        [[ -z ${TEXT[$split]:-} ]] || SPLITS+=("$split")
    done
}

# Work alone in OUT, unless making OUT/data-bin of $1 would be refused, with the texts of `find_texts "$@"`.
begin() {
    local from
    from=$(absolute "$1") OUT=$(absolute "$OUT")
    check_tokenizer
    (($# == 1)) || find_texts "$from" "${@:2}"
    alone "$OUT"
    step binarize --check --inputs "$from" ${TOKENIZER:+"$TOKENIZER"} --replaces "$OUT/data-bin" \
        --known-by text --option OUT
}

# Write the documents of TEXT to OUT/documents, with these flags.
documents() {
    local split
    for split in "${SPLITS[@]}"; do
        step "documents-$split" -- fairseq-posenc documents "$@" "<${TEXT[$split]}" ">$OUT/documents/$split"
    done
}

# Step $1 on the texts SPLITS in OUT/$2, which makes those in OUT/$3: options, -- and the command follow.
on_splits() {
    local split words=()
    for split in "${SPLITS[@]}"; do words+=("<$OUT/$2/$split" ">$OUT/$3/$split"); done
    step "$1" "${@:4}" "${words[@]}"
}

# Split the texts in OUT/documents by TOKENIZER, to OUT/$1, and write its dictionary.
by_tokenizer() {
    local files
    mapfile -t files < <(tokenizer_files)
    on_splits tokens documents "$1" --inputs "${files[@]}" -- fairseq-posenc tokenize "$TOKENIZER"
    step dictionary --inputs "${files[@]}" -- \
        fairseq-posenc tokenize "$TOKENIZER" --dictionary ">$OUT/bpe/dict.txt"
}

# Learn subwords of kind $1 from the texts in OUT/$2, with the flags $4..., and split these to OUT/$3.
by_subwords() {
    local file
    file=$OUT/bpe/$(subword_file "$1")
    step "learn-$1" -- fairseq-posenc learn-subwords "$1" "${@:4}" ">$file" "<$OUT/$2/train"
    on_splits "apply-$1" "$2" "$3" -- fairseq-posenc apply-subwords "$1" "<$file"
}

# The same with byte-level BPE and the flags $1..., from OUT/documents to OUT/bpe. It is kept and used as
# a tokenizer of transformers.
by_byte_bpe() {
    TOKENIZER=$OUT/bpe/tokenizer
    step learn-bpe --outputs "$TOKENIZER"/tokenizer{,_config}.json -- \
        fairseq-posenc learn-subwords byte-bpe "$@" "$TOKENIZER" "<$OUT/documents/train"
    by_tokenizer bpe
}

# Write these lines on how the texts were prepared, which training and fine-tuning need to know.
record() {
    ((DRY_RUN)) || { printf '%s\n' "$@" >"$OUT/text.part" && mv "$OUT/text"{.part,}; }
}

# Binarise the texts SPLITS in OUT/$1 into OUT/data-bin, with further flags for fairseq-preprocess.
binarize() {
    local part split prefixes=() kept=() copies=() made=() name
    part=$(part "$OUT/data-bin")
    for split in "${SPLITS[@]}"; do
        kept+=("$OUT/$1/$split") prefixes+=("--${split}pref" "$OUT/$1/$split")
        made+=("$OUT/data-bin/$split".{bin,idx})
    done
    if [[ -n $TOKENIZER ]]; then
        mapfile -t copies < <(tokenizer_files)
        kept+=("${copies[@]}" "$OUT/bpe/dict.txt") prefixes+=(--srcdict "$OUT/bpe/dict.txt")
        copies=('&&' mkdir -p "$part/tokenizer" '&&' cp "${copies[@]}" "$part/tokenizer")
    else
        name=$(subword_file "$SUBWORDS")
        kept+=("$OUT/bpe/$name") copies=('&&' cp "$OUT/bpe/$name" "$part/${name/#codes/bpe.codes}")
    fi
    step binarize --inputs "${kept[@]}" "$OUT/text" --replaces "$OUT/data-bin" \
        --known-by text --option OUT --outputs "$OUT"/data-bin/{dict.txt,text} "${made[@]}" -- \
        fairseq-preprocess --only-source "${prefixes[@]}" "${@:2}" \
        --destdir "$part" --workers "$WORKERS" "${copies[@]}" '&&' cp "$OUT/text" "$part/text"
    log "data for train.sh: $OUT/data-bin"
}

# The name of the file of subwords of a kind, where it is no tokenizer; in data-bin, codes is bpe.codes.
subword_file() {
    case $1 in
        sentencepiece) printf sentencepiece.model ;;
        marked-words) printf words.txt ;;
        *) printf codes ;;
    esac
}

# What the file text of a data folder says: recorded level|lengths|subwords FILE
recorded() {
    [[ ! -f $2 ]] || awk -v name="$1" '$1 == name { print $2 }' "$2"
}
