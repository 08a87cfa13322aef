//! The two macros that define settings.

/// Defines a table of settings: a struct with a default for every field, and [`Value`] for it.
///
/// A field consists of its documentation, which operators read, and
/// `name: Type = default, unit: "…", range: a..=b, source: "…";`, of which only name and type are required;
/// the facets are the fields of [`Setting`]. `name (was "other"): …` also reads the old name, and says what
/// to write. A last field `..rest: Type` takes tables that are defined elsewhere. `where check = function`
/// at the end names a check of several settings together.
///
/// [`Value`]: crate::setting::Value
/// [`Setting`]: crate::setting::Setting
#[macro_export]
macro_rules! settings {
    (
        $(#[doc = $about:literal])*
        $(#[derive($($derived:ident),+)])?
        $visibility:vis struct $Section:ident {
            $(
                $(#[doc = $what:literal])*
                $name:ident $((was $was:literal))? : $Type:ty $(= $default:expr)? $(, $facet:ident: $value:expr)* ;
            )*
            $(..$rest:ident: $Rest:ty;)?
        }
        $(where check = $check:path)?
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        $(#[derive($($derived),+)])?
        #[serde(default, deny_unknown_fields)]
        $visibility struct $Section {
            $(
                $(#[doc = $what])*
                #[serde(skip_serializing_if = "numaherd_files::setting::Value::is_left_out")]
                $(#[serde(alias = $was)])?
                pub $name: $Type,
            )*
            $(
                /// Tables that are defined elsewhere.
                #[serde(flatten)]
                pub $rest: $Rest,
            )?
        }

        impl Default for $Section {
            fn default() -> Self {
                Self {
                    $($name: $crate::settings!(@default $($default)?),)*
                    $($rest: Default::default(),)?
                }
            }
        }

        impl $crate::setting::Value for $Section {
            const KIND: $crate::setting::Kind = $crate::setting::Kind::Table(|| {
                use ::std::sync::LazyLock;
                use $crate::setting::{Section, Setting, Value};
                static SECTION: LazyLock<Section> = LazyLock::new(|| Section {
                    about: concat!($($about),*).trim_ascii(),
                    settings: {
                        #[allow(unused_mut, reason = "the rest is rare")]
                        let mut settings = vec![$(
                            Setting {
                                name: stringify!($name),
                                what: concat!($($what),*).trim_ascii(),
                                kind: <$Type as Value>::KIND,
                                optional: <$Type as Value>::OPTIONAL,
                                $(was: $was,)?
                                $($facet: $value,)*
                                ..Setting::BLANK
                            },
                        )*];
                        $(settings.extend(<$Rest>::settings());)?
                        settings
                    },
                });
                &SECTION
            });

            fn check(
                &self,
                key: &str,
                _: &$crate::setting::Setting,
                wrong: &mut Vec<$crate::setting::Wrong>,
            ) {
                let section = <Self as $crate::setting::Value>::KIND.section();
                let mut settings = section.into_iter().flat_map(|section| &section.settings);
                $(
                    if let Some(setting) = settings.next() {
                        let key = $crate::setting::joined(key, setting.name);
                        $crate::setting::Value::check(&self.$name, &key, setting, wrong);
                    }
                )*
                $(self.$rest.check(key, wrong);)?
                $($check(self, &mut |name: &str, why: String| {
                    wrong.push($crate::setting::Wrong {
                        key: $crate::setting::joined(key, name),
                        why,
                    });
                });)?
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
}

/// Defines a choice between words: an enum that is one word in a file, and [`Value`] for it.
///
/// ```
/// numaherd_files::choices! {
///     /// How much a thread may take with it.
///     pub enum MostMoved {
///         /// Less than half the difference.
///         #[default]
///         Half = "half",
///         /// As long as the difference falls.
///         Difference = "difference",
///     }
/// }
/// ```
///
/// [`Value`]: crate::setting::Value
#[macro_export]
macro_rules! choices {
    (
        $(#[doc = $about:literal])*
        $(#[derive($($derived:ident),+)])?
        $visibility:vis enum $Choices:ident {
            $(
                $(#[doc = $what:literal])*
                $(#[default $($nothing:ident)?])?
                $Variant:ident = $word:literal
            ),* $(,)?
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        $(#[derive($($derived),+)])?
        $visibility enum $Choices {
            $(
                $(#[doc = $what])*
                $(#[default $($nothing)?])?
                #[serde(rename = $word)]
                $Variant,
            )*
        }

        impl $crate::setting::Value for $Choices {
            const KIND: $crate::setting::Kind = $crate::setting::Kind::Choice(&[
                $($crate::setting::Choice { word: $word, what: concat!($($what),*) },)*
            ]);
        }
    };
}
