//! Checks which answers of a volume can be told to the kernel. Never changes one.

use crate::adapter::Shape;
use crate::request::Header;
use atoll_core::Ino;
use atoll_posix::{Answer, Attr, Kind};

/// Whether the kernel can be told this. If a volume says that the root is no directory, or that a name leads to
/// it, or gives another file's attributes, or a size below 0, the kernel makes the inode a bad one for good: of the root, that
/// would be the end of the mount.
pub(crate) fn may_be_told(header: &Header, shape: &Shape, answer: &Answer) -> bool {
    let can_be_named = |ino: Ino| ino != Ino::ROOT && ino.0 != 0;
    let has_size = |attr: &Attr| i64::try_from(attr.size).is_ok();
    match (shape, answer) {
        (Shape::Attr | Shape::Changed(_) | Shape::Statx, Answer::Attr { attr }) => {
            attr.ino.0 == header.node
                && has_size(attr)
                && (attr.ino != Ino::ROOT || attr.kind == Kind::Directory)
        }
        (_, Answer::Found { found }) => can_be_named(found.attr.ino) && has_size(&found.attr),
        (_, Answer::Entries { entries, .. }) => entries.iter().all(|entry| {
            can_be_named(entry.ino)
                && entry
                    .found
                    .as_ref()
                    .is_none_or(|f| f.attr.ino == entry.ino && f.attr.kind == entry.kind && has_size(&f.attr))
        }),
        _ => true,
    }
}
