//! Counts of the faults of a world, so that a run can print them. Decides nothing.

use std::fmt;
use std::ops::AddAssign;

macro_rules! counts {
    ($($(#[$meta:meta])* $field:ident => $shown:literal),* $(,)?) => {
        /// See the module.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Injected { $($(#[$meta])* pub $field: u64),* }

        impl Injected {
            fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$(($shown, self.$field)),*].into_iter()
            }
        }

        impl AddAssign for Injected {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counts! {
    /// Processes that ended.
    deaths => "deaths",
    /// Islands that were stopped in order.
    stops => "orderly stops",
    /// Islands that were moved.
    moves => "moved islands",
    /// Times at which a copy began to lead, where others may.
    promotions => "promotions",
    /// Logs of copies that were cut back.
    cuts => "logs cut back",
    /// Copies whose files were wiped, all or some.
    wiped => "wiped copies",
    /// Changes of which machines keep which island, and how many.
    rings => "changed rings",
    /// Copies that were wanted no more, and were removed.
    removed => "removed copies",
    /// Copies that took rows from another one.
    fills => "filled copies",
    /// Troubles of the control store, or of the ways to it.
    store_faults => "store faults",
    /// Machines that lost their power.
    power_cuts => "power cuts",
    /// Machines that stood still for a while.
    frozen => "frozen machines",
    /// Mounts that died.
    mounts => "mounts that died",
    /// Looks that mounts have answered by themselves.
    kept => "answers that mounts had kept",
    /// Times at which parties were cut apart, in both directions.
    partitions => "partitions",
    /// Times at which one direction failed and the other did not.
    one_way => "one-way partitions",
    /// Links that were made through another machine.
    relayed => "relayed links",
    /// Links that broke.
    breaks => "broken links",
    /// Messages that were sent and never arrived.
    dropped => "dropped",
    /// Messages that arrived twice.
    duplicated => "duplicated",
    /// Messages that may overtake others of their link.
    reordered => "reordered",
    /// Messages that took longer than others.
    delayed => "delayed",
    /// Times at which a disk had no room left.
    full => "full disks",
    /// Members of a union whose disk was pulled.
    pulled => "pulled disks",
    /// Times at which an island took only what makes room.
    read_only => "read-only islands",
    /// Times at which a disk became slow.
    slow => "slow disks",
    /// Effects of a disk that it refused.
    failed => "failed effects",
    /// Files of which a part could not be read.
    unreadable => "unreadable files",
    /// Operations inside, of a client that sees one directory only.
    limited => "operations of a limited client",
    /// Requests of such a client about something outside.
    refused => "requests about what is outside",
    /// Bits that changed at rest.
    flips => "flipped bits",
    /// Islands and clients with clocks of their own.
    drifted => "drifting clocks",
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut any = false;
        for (shown, count) in self.each().filter(|(_, count)| *count > 0) {
            write!(f, "{}{count} {shown}", if any { ", " } else { "" })?;
            any = true;
        }
        if any { Ok(()) } else { f.write_str("nothing injected") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_done_is_told_and_runs_add_up() {
        let mut all = Injected { deaths: 2, ..Injected::default() };
        all += Injected { deaths: 1, flips: 4, ..Injected::default() };
        assert_eq!(all.to_string(), "3 deaths, 4 flipped bits");
        assert_eq!(Injected::default().to_string(), "nothing injected");
    }
}
