# The package, installed, started, stopped and removed, under a real systemd on four nodes of two CPUs.
# Says what held, a line each; what did not is shown as it is. $PACKAGE is the package's file.
. "${0%/*}/functions.sh"

dpkg --no-triggers -i "$PACKAGE" >/dev/null || exit 1
say "installed" "$(dpkg-query -W -f '${Status}' numaherd)" "install ok installed"
say "it is not switched on" "$(systemctl is-enabled numaherd)" disabled
say "it is not started" "$(systemctl is-active numaherd)" inactive
say "its configuration is right" "$(numaherd config check >/dev/null 2>&1; echo $?)" 0
say "its pages are there" "$(man -w numaherd-run 2>/dev/null || ls /usr/share/man/man1/numaherd-run.1.gz)" \
    /usr/share/man/man1/numaherd-run.1.gz

# What the doctor finds, by the service's rights alone: the same as root.
sed -e 's|^Type=.*|Type=oneshot|; s|^ExecStart=.*|ExecStart=/usr/bin/numaherd doctor|' \
    -e '/^Exec\(Reload\|StopPost\)=/d; /^WatchdogSec=/d; /^Restart=/d; /^Conflicts=/d' \
    -e 's|^\[Service\]|[Service]\nStandardOutput=file:/run/look|' \
    /usr/lib/systemd/system/numaherd.service >/etc/systemd/system/look.service
systemctl daemon-reload
systemctl start look || echo "the doctor did not run under the service's rights"
signals() { sed -n '/^Signals/,/^Policies/p; /^Rights/,/^Who/p' "$1" | grep -v 'open files\|ulimit\|filter\|seccomp\|perf_event_open and\|perf_event_open, move_pages\|whatever the capabilities\|run outside'; }
(ulimit -n 1048576; numaherd doctor) >/run/root-look
signals /run/look >/run/look-of-service
signals /run/root-look >/run/look-of-root
[ "$(grep -c . /run/look-of-service)" -gt 10 ] || echo "the doctor said little under the service's rights"
say "with its rights the doctor finds what root finds" "$(diff /run/look-of-root /run/look-of-service)" ""

begin_busy_program

configure 'policy = "random"'
systemctl start numaherd
say "it is at work" "$(systemctl is-active numaherd)" active
main=$(shown MainPID)
say "it has three capabilities" "$(sed -n 's/^CapEff:[[:space:]]*//p' "/proc/$main/status")" 0000004000880000
run_until_placed && echo "a busy program was placed"
serving=$(grep -l '^numaherd-serve' /proc/"$main"/task/*/comm)
say "its sockets are served without any" "$(sed -n 's/^CapPrm:[[:space:]]*//p' "${serving%comm}status")" 0000000000000000
until_holds tells random && echo "systemctl status tells the policy"
numaherd ctl status >/run/status 2>&1 || cat /run/status
grep -q random /run/status && echo "ctl tells the policy"

configure 'polcy = "random"'
systemctl reload numaherd
say "a wrong configuration is survived" "$(systemctl is-active numaherd) $(shown MainPID)" "active $main"
configure 'policy = "linux"'
systemctl reload numaherd
until_holds tells linux && echo "a right one is taken over"

configure 'policy = "random"'
systemctl reload numaherd
run_until_placed
configure 'policy = "linux"'
kill -KILL "$main"
until_holds has_restarted && echo "after kill -9 it starts again"
given_back "after kill -9 the affinity is as found"

configure 'policy = "random"'
systemctl reload numaherd
run_until_placed
systemctl stop numaherd
given_back "after stop the affinity is as found"
say "it stopped well" "$(systemctl is-active numaherd) $(shown Result)" "inactive success"

# Without a new start, which gives back as well.
mkdir /etc/systemd/system/numaherd.service.d
printf '[Service]\nRestart=no\n' >/etc/systemd/system/numaherd.service.d/once.conf
systemctl daemon-reload
systemctl start numaherd
run_until_placed
kill -KILL "$(shown MainPID)"
until_holds has_failed
given_back "release gives back after kill -9"
rm -r /etc/systemd/system/numaherd.service.d
systemctl daemon-reload
systemctl reset-failed numaherd

# A call that the unit's filter lacks ends the program at once. It does all that it can: counts or finds
# that it cannot, places threads, moves pages, answers HTTP and every request, reads its configuration
# again, gives back. Without a call that it needs, this would end it.
dropin=/etc/systemd/system/numaherd.service.d/kill.conf
mkdir ${dropin%/*} /etc/systemd/system/look.service.d
printf '[Service]\nSystemCallErrorNumber=kill\nRestart=no\n' | tee $dropin >/etc/systemd/system/look.service.d/kill.conf
systemctl daemon-reload
configure 'policy = "random+whole-set"'
systemctl start numaherd
run_until_placed
moved() { fetch /metrics | grep -q '^numaherd_pages_moved_total{.*} [1-9]'; }
fetch() {
    bash -c 'exec 3<>/dev/tcp/127.0.0.1/9741; printf "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" "$0" >&3; cat <&3' "$1"
}
until_holds moved
for page in / /status /healthz; do fetch $page >/dev/null; done
timeout 1 numaherd ctl watch >/dev/null
for request in status 'pause --give-back' resume 'policy dino' 'policy brm' 'policy n-mass' 'policy ipm' \
    'policy random' reload; do
    numaherd ctl $request >/run/asked 2>&1 || grep -q 'needs the signal' /run/asked || cat /run/asked
done
systemctl reload numaherd
systemctl start look
systemctl stop numaherd
say "no call that it needs is filtered" "$(shown Result) $(systemctl is-failed look)" "success inactive"
printf 'SystemCallFilter=~sched_setaffinity\n' >>$dropin
systemctl daemon-reload
systemctl start numaherd
until_holds has_failed
say "a call that is filtered ends it" "$(shown ExecMainStatus)" 31
rm -r ${dropin%/*} /etc/systemd/system/look.service.d
systemctl daemon-reload
systemctl reset-failed numaherd
configure 'policy = "random"'

systemctl start numaherd
run_until_placed
dpkg --no-triggers -r numaherd >/dev/null
given_back "removing it gives back"
say "removing it stops it" "$(systemctl is-active numaherd)" inactive
say "its configuration stays" "$(ls /etc/numaherd)" numaherd.toml
rm /etc/systemd/system/look.service
dpkg --no-triggers -P numaherd >/dev/null
named() { find "$@" -name '*numaherd*' 2>/dev/null; }
say "purging leaves nothing" "$(named /usr/share/doc -maxdepth 1)$(named /usr/share/man -maxdepth 2)$(named /etc/numaherd \
    /etc/systemd /usr/bin /usr/lib/systemd /usr/share/bash-completion /usr/share/zsh /usr/share/fish /var/lib/numaherd \
    /var/lib/systemd /run/numaherd)" ""
kill $p
exit 0
