# shellcheck shell=bash
# Helpers shared by the recipes in examples/.  Source this file, do not run it:
#
#     set -euo pipefail
#     . "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/../common/lib.sh"
#
# It sets REPO (repository root), COMMON (this folder) and DRY_RUN (0), makes the
# repository's .venv usable when no environment is active, and defines
#
#     usage                      print the comment at the head of the script, exit with 0
#     die TEXT                   print a one-line error, exit with 1
#     log TEXT                   print a line with the time on standard error
#     value "$@"                 print the value of option $1; error if there is none
#     whole_number FLAG VALUE    error unless VALUE is a whole number above 0
#     fraction N PARTS           print N / PARTS rounded down, but at least 1
#     absolute PATH              print PATH as an absolute path
#     need COMMAND...            error unless every command is installed (not in a dry run)
#     run COMMAND...             print the command and, except in a dry run, run it
#     step NAME COMMAND...       run COMMAND once; STEPS names the folder of the markers
#     same_run FLAG FOLDER COMMAND...  error if FOLDER, which FLAG can change, was started with
#                                another COMMAND
#     verify FILE [DIGEST]       check a file, or record its sha256 in RECORD; sets SHA256
#     fetch URL FILE [DIGEST]    download with resume, then verify
#     plugin_dir                 print the folder to pass to --user-dir
#     fairseq-posenc COMMAND...  the plug-in's command line, of the same copy

COMMON=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$COMMON/../.." && pwd)
DRY_RUN=0
STEP_CHAIN=""

if ! command -v fairseq-train >/dev/null && [[ -x $REPO/.venv/bin/fairseq-train ]]; then
    PATH=$REPO/.venv/bin:$PATH
fi

usage() {
    sed -n '2,/^[^#]/{/^#SBATCH/d;/^#/s/^# \{0,1\}//p}' "$0"
    exit 0
}

die() {
    printf '%s: error: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

log() {
    printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2
}

value() {
    (($# >= 2)) || die "$1 needs a value; see --help"
    printf '%s' "$2"
}

whole_number() {
    [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 $2: expected a whole number above 0"
}

fraction() {
    echo $(($1 / $2 > 0 ? $1 / $2 : 1))
}

absolute() {
    case $1 in
        /*) printf '%s' "$1" ;;
        *) printf '%s/%s' "$PWD" "$1" ;;
    esac
}

need() {
    local command
    ((DRY_RUN)) && return 0
    for command in "$@"; do
        command -v "$command" >/dev/null ||
            die "$command is not installed; run scripts/setup.sh or activate your environment"
    done
}

run() {
    local line
    printf -v line ' %q' "$@"
    if ((DRY_RUN)); then
        printf '+%s\n' "$line"
        return 0
    fi
    printf '+%s\n' "$line" >&2
    "$@" || {
        local status=$? name=$1
        [[ $name != python ]] || name=$2
        die "${name##*/} stopped with status $status (see above)"
    }
}

# A marker holds a hash of this step's command and of all steps before it, so a
# changed option repeats the steps that depend on it and no others.
step() {
    local name=$1 marker=$STEPS/$1 key
    shift
    STEP_CHAIN+="$name: $*"$'\n'
    key=$(printf '%s' "$STEP_CHAIN" | sha256sum)
    if ((!DRY_RUN)) && [[ -f $marker && $(<"$marker") == "$key" ]]; then
        log "$name: already done"
        return 0
    fi
    log "$name"
    if declare -F "$1" >/dev/null; then
        "$@"
    else
        run "$@"
    fi
    ((DRY_RUN)) && return 0
    mkdir -p "$STEPS"
    printf '%s\n' "$key" >"$marker.part"
    mv "$marker.part" "$marker"
}

# A run can only be resumed with the command that started it.
same_run() {
    local flag=$1 folder=$2 begun
    shift 2
    ((DRY_RUN)) && return 0
    printf -v begun '%q ' "$@"
    [[ ! -f $folder/command || $(<"$folder/command") == "$begun" ]] ||
        die "$folder was started with other flags (see its file command); give another $flag"
    mkdir -p "$folder"
    printf '%s\n' "$begun" >"$folder/command"
}

# Print the digest of file name $2 in the sha256sum-style file $1, if it has one.
recorded_digest() {
    [[ -f $1 ]] || return 0
    awk -v name="$2" '$1 !~ /^#/ && ($2 == name || $2 == "*" name) { print $1; exit }' "$1"
}

# Never record the digest of an incomplete archive.
check_whole() {
    case $2 in
        *.gz | *.tgz)
            gzip --test <"$1" 2>/dev/null || die "$1: damaged or incomplete; replace or remove it"
            ;;
    esac
}

# DIGEST is sha256:HEX, md5:HEX or "-" if unknown.  Entries in CHECKSUMS (a file given by the
# user) take precedence over it, and it takes precedence over RECORD (from the first download).
verify() {
    local file=$1 digest=${2:--} name=${1##*/} given seen source="the recipe"
    name=${name%.new}
    given=$(recorded_digest "${CHECKSUMS:-}" "$name")
    if [[ -n $given ]]; then
        digest=sha256:$given source=$CHECKSUMS
    elif [[ $digest == - ]]; then
        given=$(recorded_digest "${RECORD:-}" "$name")
        [[ -z $given ]] || digest=sha256:$given source=$RECORD
    fi
    SHA256=$(sha256sum <"$file")
    SHA256=${SHA256%% *}
    case $digest in
        sha256:*) seen=sha256:$SHA256 ;;
        md5:*) seen=$(md5sum <"$file") && seen=md5:${seen%% *} ;;
        -) seen=- && check_whole "$file" "$name" ;;
        *) die "$name: digest $digest: expected sha256:HEX, md5:HEX or -" ;;
    esac
    [[ $seen == "$digest" ]] ||
        die "$file has $seen but $source says $digest; remove it, or give --checksums FILE"
    STEP_CHAIN+="$name $SHA256"$'\n'
    case $digest in
        -) log "$name: no digest known; trusting sha256 $SHA256 from now on" ;;
        *) log "$name: $digest as $source says" ;;
    esac
    if [[ -n ${RECORD:-} && -z $(recorded_digest "$RECORD" "$name") ]]; then
        mkdir -p "$(dirname "$RECORD")"
        printf '%s  %s\n' "$SHA256" "$name" >>"$RECORD"
    fi
}

# FILE.part is an interrupted download, which is resumed; FILE.new is a complete one that is
# not verified yet.
fetch() {
    local url=$1 file=$2 digest=${3:--}
    if [[ -f $file ]]; then
        ((DRY_RUN)) || verify "$file" "$digest"
        return 0
    fi
    if [[ ! -f $file.new ]]; then
        need curl
        run mkdir -p "$(dirname "$file")"
        run curl --fail --location --retry 5 --continue-at - --output "$file.part" "$url"
        run mv "$file.part" "$file.new"
    fi
    ((DRY_RUN)) || verify "$file.new" "$digest"
    run mv "$file.new" "$file"
}

# The checkout takes precedence over an installed copy, so that recipe and plug-in match.
plugin_dir() {
    if [[ -f $REPO/fairseq_posenc/__init__.py ]]; then
        printf '%s' "$REPO/fairseq_posenc"
    else
        python -m fairseq_posenc path || die "fairseq_posenc is not installed; give --user-dir"
    fi
}

fairseq-posenc() {
    PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH} python -m fairseq_posenc "$@"
}
