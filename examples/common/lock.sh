# shellcheck shell=bash
# One process at a time in a folder. Sourced by lib.sh; defines
#
#     hold FOLDER [wait]   lock FOLDER until this script and all that it started have ended;
#                          error if another process holds it, or wait until none does
#     release              unlock the folder that was locked last
#     contents FOLDER      print the paths in FOLDER, except the lock
#
# The lock is on FOLDER/.lock, which names the process. Scripts that this one starts may hold the
# same folder.

LOCKS=()

hold() {
    local folder=$1 how=${2:-} file lock status=0
    ((DRY_RUN)) && return 0
    need flock
    mkdir -p "$folder" 2>/dev/null || die "$folder: cannot be created; give another folder"
    [[ -w $folder ]] || die "$folder: cannot be written to; give another folder"
    file=$(cd "$folder" && pwd -P)/.lock
    [[ ! -e $file || -f $file ]] || die "$file: is not a file; remove it"
    if [[ $'\n'${HELD_LOCKS:-}$'\n' == *$'\n'"$file"$'\n'* ]]; then
        LOCKS+=("")
        return 0
    fi
    exec {lock}<>"$file"
    flock --nonblock "$lock" || status=$?
    if ((status == 1)) && [[ $how == wait ]]; then
        log "$folder: waiting for $(_holder "$file")"
        status=0
        interruptible flock "$lock" || status=$?
    fi
    ((status != 1)) ||
        die "$folder: $(_holder "$file") is at work there; wait until it has ended, or stop it"
    ((!status)) || log "$folder: this file system has no locks; start nothing else there"
    printf '%s %s %s\n' "$$" "${HOSTNAME:-}" "${0##*/}" >"$file"
    LOCKS+=("$lock")
    export HELD_LOCKS=${HELD_LOCKS:-}$'\n'$file
}

release() {
    local lock
    ((DRY_RUN)) && return 0
    lock=${LOCKS[${#LOCKS[@]} - 1]}
    unset "LOCKS[${#LOCKS[@]}-1]"
    [[ -n $lock ]] || return 0
    exec {lock}>&-
    HELD_LOCKS=${HELD_LOCKS%$'\n'*}
}

contents() {
    find "$1" -mindepth 1 -maxdepth 1 ! -name .lock
}

# The process that a lock file names; if that was killed, those that it left behind.
_holder() {
    local pid="" host="" name="" open left=" "
    read -r pid host name <"$1" || true
    if [[ -n $pid && $host == "${HOSTNAME:-}" ]] && ! kill -0 "$pid" 2>/dev/null; then
        for open in /proc/[0-9]*/fd/*; do
            [[ $open -ef $1 ]] || continue
            open=${open#/proc/} open=${open%%/*}
            [[ $open == "$$" || $open == "$BASHPID" || $left == *" $open "* ]] || left+="$open "
        done
        [[ $left == " " ]] || name+=", killed, left process$left" name=${name% }
    fi
    printf 'process %s (%s%s)' "${pid:-unknown}" "$name" "${host:+ on $host}"
}
