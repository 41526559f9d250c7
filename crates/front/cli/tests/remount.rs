//! `mount -o remount` of a mount, by mount(8) itself with its helper in place.

mod common;

use atoll_needs::needs;
use common::{Cluster, script, text};

#[test]
fn mount_8_changes_what_the_kernel_knows_of_a_mount_while_it_is_used() {
    needs!(Mounts, Programs(&["findmnt", "mount", "umount", "unshare", "bash"]));
    let cluster = Cluster::new(1);
    let point = cluster.scratch.dir("mnt");
    let said = script(
        &cluster.scratch,
        &format!(
            "P='{0}'
             fails() {{ if \"$@\"; then echo it should fail: \"$@\"; exit 1; fi; }}
             shows() {{ findmnt -n -o OPTIONS --mountpoint $P | tr , '\\n' | grep -qx $1; }}
             mount -t atoll -o soft=5 {1} $P
             shows rw; shows relatime
             echo some > $P/f
             sleep 0.1; cat $P/f > /dev/null
             test $(stat -c %X%x $P/f | tr -d ': .+-') != $(stat -c %Y%y $P/f | tr -d ': .+-')
             exec 7>> $P/open
             fails mount -o remount,ro $P 2> {0}.said
             grep -q 'open for writing' {0}.said
             shows rw; echo more >> $P/f
             exec 7>&-
             sleep 0.2
             mount -o remount,ro $P
             shows ro; fails shows rw
             fails bash -c \"echo x > $P/g\" 2> {0}.said
             grep -q 'Read-only file system' {0}.said
             fails mkdir $P/d; fails rm -f $P/f
             cat $P/f > /dev/null
             mount -o remount,rw,noatime $P
             shows rw; shows noatime
             echo new > $P/f
             T=$(stat -c %x $P/f); sleep 0.1; cat $P/f > /dev/null; test \"$T\" = \"$(stat -c %x $P/f)\"
             mount -o remount,strictatime $P
             fails shows noatime; fails shows relatime
             sleep 0.1; cat $P/f > /dev/null; fails test \"$T\" = \"$(stat -c %x $P/f)\"
             mount -o remount,relatime,nosuid $P
             shows relatime; shows nosuid; shows rw
             mount -o remount,soft=9 $P
             umount $P",
            text(&point),
            cluster.source(),
        ),
    );
    assert!(said.contains("\"soft=9\" stays as it was"), "{said}");
}
