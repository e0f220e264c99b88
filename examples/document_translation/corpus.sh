#!/usr/bin/env bash
# Parallel documents that are published: download, check, and write a sentence a line.
#
#   corpus.sh CORPUS DATA [options]
#
# CORPUS is
#
#   news-commentary   version 14; of its last documents, half become valid and half test
#   ted               IWSLT 2017, with dev2010 as valid and tst2010 as test. The archive,
#                     2017-01-trnmted.tgz of wit3.fbk.eu, has to be downloaded in a browser: give --raw
#   contrapro         the choices of ContraPro, English to German, in contrapro.json; its own
#                     setup_opensubs.sh makes the documents
#
# DATA holds {train,valid,test}.LANG, with a blank line after each document. It appears when it is
# complete; until then everything is in DATA.part, from which an interrupted download resumes.
#
#   --source-lang LANG    (en)
#   --target-lang LANG    (de)
#   --held-out N          documents of news-commentary for valid and test together (400)
#   --raw DIR             take the archive from DIR instead of downloading it
#   --checksums FILE      sha256sum-style list of the archives to trust before any other
#   options of ../common/steps.sh --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/digests.sh"

# The archive of a corpus and pair of languages, where it is, and the digest that tensorflow_datasets
# (news-commentary) or torchtext (ted) published, or by which git knows the file (contrapro).
NEWS=http://data.statmt.org/news-commentary/v14/training/
ARCHIVES="
news-commentary cs-en $NEWS sha256:b0ef38b810bc67811eb908080243e0211062c26a7a71cc05996c96ea6c55e0ff
news-commentary de-en $NEWS sha256:8aaa98a77d38bd39dcbdbcb775f3b6c633700e4c10fd915cf3dc6b9bfd0f2dca
news-commentary de-fr $NEWS sha256:31a7735fe2ae6d6841847fdebb5aed03d5da1c15500695154d3c35d40c29cb09
news-commentary en-kk $NEWS sha256:bc0fdd1dd040c53409ace60c019a8a58450a36f128bc1e4263fcb5d4fc1bf0cb
news-commentary en-ru $NEWS sha256:09aef10a0bb51104622ff6852cdf4f693b5906de970156b4e8db1e64ec55340c
news-commentary en-zh $NEWS sha256:fc9cc3f28ad62872d8eece1dffb1148f972baf6621bc87ba049a3ae0aab4025b
ted any - md5:aca701032b1c4411afc4d9fa367796ba
contrapro de-en https://raw.githubusercontent.com/ZurichNLP/ContraPro/master/ git:93c972e6db6ba3f6839937f408e26fcb6b13fcde
"
sorted() { printf '%s\n' "$@" | LC_ALL=C sort | paste -sd-; }
PAIR=$(sorted "$SOURCE_LANG" "$TARGET_LANG")
ENTRY=$(awk -v corpus="$CORPUS" -v pair="$PAIR" \
    '$1 == corpus && ($2 == pair || $2 == "any")' <<<"$ARCHIVES")
KNOWN=$(awk -v corpus="$CORPUS" '$1 == corpus { print $2 }' <<<"$ARCHIVES" | paste -sd' ')
[[ -n $KNOWN ]] || die "CORPUS $CORPUS: unknown; give news-commentary, ted or contrapro"
[[ -n $ENTRY ]] || die "$CORPUS has no $SOURCE_LANG and $TARGET_LANG; it has $KNOWN"
[[ $CORPUS != ted || ($SOURCE_LANG =~ ^(de|en|it|nl|ro)$ && $TARGET_LANG =~ ^(de|en|it|nl|ro)$) ]] ||
    die "ted has no $SOURCE_LANG and $TARGET_LANG; its languages are de, en, it, nl and ro"
[[ $SOURCE_LANG != "$TARGET_LANG" ]] || die "--target-lang $TARGET_LANG: is the source language, too"
[[ $CORPUS != contrapro || $SOURCE_LANG == en ]] || die "contrapro is English to German"
[[ $CORPUS == news-commentary ]] || useless "on $CORPUS" --held-out
[[ $HELD_OUT =~ ^[1-9][0-9]*$ && $((HELD_OUT % 2)) == 0 ]] ||
    die "--held-out $HELD_OUT: give an even number of documents"
read -r _ _ ADDRESS DIGEST <<<"$ENTRY"
case $CORPUS in
    news-commentary) NAME=news-commentary-v14.$PAIR.tsv.gz ;;
    ted) NAME=2017-01-trnmted.tgz ;;
    contrapro) NAME=contrapro.json ;;
esac
[[ $ADDRESS != - || -n $RAW ]] || die "$CORPUS: give the folder with $NAME as --raw"
[[ -z $RAW || -f $RAW/$NAME ]] || die "--raw $RAW: has no $NAME"

DATA=$(absolute "$DATA") # a slash at its end would put the .part below in it
[[ ! -e $DATA ]] || die "$DATA: already exists; give a new folder"
PART=$DATA.part RECORD=$DATA.part/archives.sha256 FROM=$(absolute "${RAW:-$DATA.part}")
alone "$PART"
fetch "$ADDRESS$NAME" "$FROM/$NAME" "$DIGEST"

news() {
    local left=${PAIR%-*} right=${PAIR#*-} documents lang
    run fairseq-posenc parallel-documents tsv "$FROM/$NAME" "$PART/all.$left" "$PART/all.$right"
    ((!DRY_RUN)) || return 0
    documents=$(awk -v RS= 'END { print NR }' "$PART/all.$left")
    ((documents > HELD_OUT)) || die "$NAME: $documents documents, not more than --held-out $HELD_OUT"
    for lang in "$left" "$right"; do
        awk -v RS= -v ORS='\n\n' -v to="$PART" -v lang="$lang" -v left=$((documents - HELD_OUT)) \
            -v half=$((HELD_OUT / 2)) '{
                split_name = NR <= left ? "train" : NR <= left + half ? "valid" : "test"
                print > (to "/" split_name "." lang)
            }' "$PART/all.$lang"
        rm "$PART/all.$lang"
    done
}

talks() {
    local lang pair=$SOURCE_LANG-$TARGET_LANG inner=DeEnItNlRo-DeEnItNlRo split name
    run mkdir -p "$PART"
    run tar -xzf "$FROM/$NAME" -C "$PART" "2017-01-trnmted/texts/DeEnItNlRo/DeEnItNlRo/$inner.tgz"
    run tar -xzf "$PART/2017-01-trnmted/texts/DeEnItNlRo/DeEnItNlRo/$inner.tgz" -C "$PART"
    for split in train valid test; do
        local files=()
        for lang in "$SOURCE_LANG" "$TARGET_LANG"; do
            case $split in
                train) name=train.tags.$pair.$lang ;;
                valid) name=IWSLT17.TED.dev2010.$pair.$lang.xml ;;
                test) name=IWSLT17.TED.tst2010.$pair.$lang.xml ;;
            esac
            files+=("$PART/$inner/$name")
        done
        run fairseq-posenc parallel-documents tagged "${files[@]}" \
            "$PART/$split.$SOURCE_LANG" "$PART/$split.$TARGET_LANG"
    done
    run rm -r "$PART/2017-01-trnmted" "$PART/$inner"
}

case $CORPUS in
    news-commentary) news ;;
    ted) talks ;;
    contrapro) [[ -z $RAW ]] || run cp "$FROM/$NAME" "$PART/$NAME" ;;
esac
run mv "$PART" "$DATA"
