# In the guest: starts a real systemd as process 1 of a namespace of its own, runs a script in it.
#
#   boot.sh SCRIPT     the script's environment is this one's
#
# The guest's own first process stays what it is. The file system is an overlay that goes with the
# guest, so what the host's services would do here is taken away: no service but the one under test, and no generator
# of services, each of which systemd runs whenever it reads its units again. dpkg reads the files of all packages that
# it knows, so it knows those alone that $PACKAGE depends on.
set -u
rm -rf /etc/systemd/system/* /usr/lib/systemd/system/*.wants /lib/systemd/system/*.wants \
    /usr/lib/systemd/system-generators /usr/sbin/policy-rc.d /run/systemd
needed=$(dpkg-deb --field "$PACKAGE" Pre-Depends Depends | sed 's/^[^:]*://; s/([^)]*)//g' | tr -s ', \n' '|')
needed=${needed#|} known=/var/lib/dpkg/status
awk -v RS= -v ORS='\n\n' -v needed="^Package: (${needed%|})\n" '$0 ~ needed' $known >$known.needed
mv $known.needed $known
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
# The unit limits its CPU time. With the first limit and after the last, the kernel rewrites its scheduler's code, which
# QEMU may go on executing half written on other CPUs. A limit that stays, before anything runs, has it written once.
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/limited
echo +cpu >/sys/fs/cgroup/limited/cgroup.subtree_control
mkdir /sys/fs/cgroup/limited/always
echo 100000 100000 >/sys/fs/cgroup/limited/always/cpu.max
mountpoint -q /run || mount -t tmpfs none /run
cat >/etc/systemd/system/quiet.target <<END
[Unit]
Description=Nothing but systemd itself
DefaultDependencies=no
END
unshare --pid --fork --mount --mount-proc env -i PATH="$PATH" container=lab \
    /lib/systemd/systemd --system --unit=quiet.target --log-target=kmsg --show-status=0 &
outer=$!

# Its number here is that of the child of unshare; it is asked for over and over, for at most so long.
tries=0
inner=
until [ -n "$inner" ] && nsenter -t "$inner" -p -m systemctl is-system-running >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 1000 ] || { echo "systemd did not come up"; exit 1; }
    inner=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null)
    inner=${inner%% *}
done
nsenter -t "$inner" -p -m sh -u "$1"
status=$?
kill -KILL "$inner"
exit $status
