//! Structs of counters that list themselves: a new counter is one line of code, and appears wherever the list
//! is shown.

/// Declares a struct of `u64` counters that begin at zero, with the visibility given, and its method `list`:
/// the name and value of each.
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$of:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$of])* $vis $field: u64,)*
        }

        impl $name {
            /// The name and value of each counter, in their order.
            $vis fn list(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    counters! {
        /// Two of them.
        struct Two {
            /// The first.
            first,
            /// The second.
            second,
        }
    }

    #[test]
    fn a_counter_is_in_the_list_under_its_name() {
        let two = Two { second: 7, ..Two::default() };
        assert_eq!(two.list().collect::<Vec<_>>(), [("first", 0), ("second", 7)]);
    }
}
