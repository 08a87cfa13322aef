# What the scripts about the package share: they say what held, a line each; what did not is shown as it is.
mask() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/status"; }
shown() { systemctl show -p "$1" --value numaherd; }
# Asks over and over, for at most so many times.
until_holds() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 3000 ] || { echo "never held: $*"; return 1; }
    done
}
say() { [ "$2" = "$3" ] && echo "$1" || echo "NOT: $1 ($2, not $3)"; }
differs() { [ "$(mask "$1")" != "$2" ]; }
tells() { shown StatusText | grep -q "$1"; }
is_active() { systemctl --quiet is-active numaherd; }
has_restarted() { [ "$(shown NRestarts)" = 1 ] && is_active; }
has_failed() { [ "$(systemctl is-active numaherd)" = failed ]; }
configure() { printf '%s\n' "$1" '[herd]' 'placement_interval_ms = 200' >/etc/numaherd/numaherd.toml; }
# Somebody else's busy program: its number is $p, and its mask as it was $found. It is stopped until it is to be placed,
# since it takes a CPU of the host from the rest of the guest.
begin_busy_program() {
    setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'while :; do :; done' &
    p=$!
    found=$(mask $p)
    kill -STOP $p
}
run_until_placed() { kill -CONT $p && until_holds differs $p "$found"; }
# Says whether its affinity is as found, and stops it again.
given_back() {
    say "$1" "$(mask $p)" "$found"
    kill -STOP $p
}
