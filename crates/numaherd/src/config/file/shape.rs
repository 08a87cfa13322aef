//! What a configuration may hold, found out from the types that it is read into.
//!
//! A type that serde can read asks whoever feeds it for what it needs: a struct names its fields, an
//! enum its variants, a number its kind. [`shape_of`] feeds a type something of the right kind
//! everywhere and notes what was asked. Nobody writes the list of keys, so none can be missing from
//! it: the documentation, the check for unknown keys and what is said about a wrong value are all
//! held against it.

use std::fmt;

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

/// What may stand in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A table of these keys.
    Table(Vec<Field>),
    /// A table whose keys are the user's own.
    Map(Box<Shape>),
    /// A list.
    List(Box<Shape>),
    /// True or false.
    Switch,
    /// A whole number from 0 to this.
    Whole(u64),
    /// A number.
    Number,
    /// Text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Whether leaving it out is a value of its own, and no other says the same.
    pub optional: bool,
    /// What it holds.
    pub shape: Shape,
}

impl Shape {
    /// The keys of a table, or of each table of a list of them.
    pub fn fields(&self) -> Option<&[Field]> {
        match self {
            Self::Table(fields) => Some(fields),
            Self::List(each) => each.fields(),
            _ => None,
        }
    }

    /// The same without a key, which is named from the outermost table on.
    #[must_use]
    pub fn without(mut self, key: &[&str]) -> Self {
        if let (Self::Table(fields), [first, rest @ ..]) = (&mut self, key) {
            if rest.is_empty() {
                fields.retain(|field| field.name != *first);
            }
            for field in fields.iter_mut().filter(|field| field.name == *first) {
                field.shape = field.shape.clone().without(rest);
            }
        }
        self
    }

    /// Every table with its dotted name, the outermost (named "") first, in the order of the types.
    pub fn tables(&self) -> Vec<(String, &[Field])> {
        let mut found = Vec::new();
        self.collect(String::new(), &mut found);
        found
    }

    fn collect<'s>(&'s self, name: String, found: &mut Vec<(String, &'s [Field])>) {
        let Some(fields) = self.fields() else { return };
        found.push((name.clone(), fields));
        for field in fields {
            field.shape.collect(joined(&name, field.name), found);
        }
    }

    /// Every key that holds a value rather than further keys, by its dotted name.
    #[cfg(test)]
    pub fn keys(&self) -> Vec<(String, &Field)> {
        let mut found = Vec::new();
        for (table, fields) in self.tables() {
            let values = fields.iter().filter(|field| field.shape.fields().is_none());
            found.extend(values.map(|field| (joined(&table, field.name), field)));
        }
        found
    }

    /// In words, what may stand there: `a whole number`.
    pub fn wanted(&self) -> String {
        match self {
            Self::Table(_) => "a table".to_owned(),
            Self::Map(each) => format!("a table of names, each with {}", each.wanted()),
            Self::List(each) if each.fields().is_some() => {
                "a list of tables, each under a heading in [[double brackets]]".to_owned()
            }
            Self::List(each) => format!("a list in brackets, each {}", each.wanted()),
            Self::Switch => "true or false".to_owned(),
            Self::Whole(u64::MAX) => "a whole number, 0 or more".to_owned(),
            Self::Whole(most) => format!("a whole number from 0 to {most}"),
            Self::Number => "a number".to_owned(),
            Self::Text => "text in quotes".to_owned(),
            Self::Choice(words) => match words {
                [one] => format!("{one:?}"),
                [first @ .., last] => {
                    let first: Vec<String> = first.iter().map(|word| format!("{word:?}")).collect();
                    format!("{} or {last:?}", first.join(", "))
                }
                [] => "nothing".to_owned(),
            },
        }
    }
}

/// A key's dotted name.
pub fn joined(table: &str, key: &str) -> String {
    if table.is_empty() {
        key.to_owned()
    } else {
        format!("{table}.{key}")
    }
}

/// The shape of a type.
///
/// # Panics
/// A type that cannot be described so: a struct with fields of several kinds, a variant with content.
/// It is the program's own type, and a test asks for it.
pub fn shape_of<'de, T: Deserialize<'de>>() -> Shape {
    let mut seen = Seen::default();
    let fed = T::deserialize(Ask { seen: &mut seen });
    match (fed, seen.shape) {
        (Ok(_), Some(shape)) => shape,
        (Err(error), _) => panic!("a configuration's type cannot be described: {error}"),
        (Ok(_), None) => panic!("a configuration's type that asks for nothing"),
    }
}

/// What a place turned out to want.
#[derive(Default)]
struct Seen {
    shape: Option<Shape>,
    optional: bool,
}

/// Feeds one place, and notes what it wants.
struct Ask<'s> {
    seen: &'s mut Seen,
}

/// Nothing in a configuration is of this kind.
#[derive(Debug)]
struct Unasked(String);

impl fmt::Display for Unasked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unasked {}

impl serde::de::Error for Unasked {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self(why.to_string())
    }
}

/// Answers with a value that every such type takes.
macro_rules! plain {
    ($($method:ident: $shape:expr => $visit:ident($value:expr);)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unasked> {
            self.seen.shape = Some($shape);
            visitor.$visit($value)
        }
    )*};
}

impl<'de> Deserializer<'de> for Ask<'_> {
    type Error = Unasked;

    plain! {
        deserialize_bool: Shape::Switch => visit_bool(false);
        deserialize_u8: Shape::Whole(u8::MAX.into()) => visit_u8(1);
        deserialize_u16: Shape::Whole(u16::MAX.into()) => visit_u16(1);
        deserialize_u32: Shape::Whole(u32::MAX.into()) => visit_u32(1);
        deserialize_u64: Shape::Whole(u64::MAX) => visit_u64(1);
        deserialize_f32: Shape::Number => visit_f32(1.0);
        deserialize_f64: Shape::Number => visit_f64(1.0);
        // A number is text as well: where a list of CPUs is wanted, this is one.
        deserialize_str: Shape::Text => visit_str("0");
        deserialize_string: Shape::Text => visit_str("0");
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unasked> {
        self.seen.optional = true;
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unasked> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unasked> {
        let mut found = Vec::new();
        let value = visitor.visit_map(Fields {
            left: fields.iter(),
            next: None,
            found: &mut found,
        })?;
        self.seen.shape = Some(Shape::Table(found));
        Ok(value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unasked> {
        let mut each = One::default();
        let value = visitor.visit_map(&mut each)?;
        self.seen.shape = Some(Shape::Map(each.shape()?));
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unasked> {
        let mut each = One::default();
        let value = visitor.visit_seq(&mut each)?;
        self.seen.shape = Some(Shape::List(each.shape()?));
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unasked> {
        self.seen.shape = Some(Shape::Choice(variants));
        let first = variants.first().copied();
        visitor.visit_enum(First(
            first.ok_or_else(|| Unasked("an enum without variants".to_owned()))?,
        ))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Unasked> {
        Err(Unasked::custom("a value of a kind that has no name"))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
        ignored_any
    }
}

/// The fields of a struct, one after another.
struct Fields<'s> {
    left: std::slice::Iter<'static, &'static str>,
    next: Option<&'static str>,
    found: &'s mut Vec<Field>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Unasked;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unasked> {
        self.next = self.left.next().copied();
        let name: Option<StrDeserializer<'de, Unasked>> =
            self.next.map(IntoDeserializer::into_deserializer);
        name.map(|name| seed.deserialize(name)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unasked> {
        let mut seen = Seen::default();
        let value = seed.deserialize(Ask { seen: &mut seen })?;
        let (Some(name), Some(shape)) = (self.next.take(), seen.shape) else {
            return Err(Unasked::custom("a field that asks for nothing"));
        };
        self.found.push(Field {
            name,
            optional: seen.optional,
            shape,
        });
        Ok(value)
    }
}

/// A map or a list of one entry.
#[derive(Default)]
struct One {
    key_given: bool,
    shape: Option<Shape>,
}

impl One {
    fn shape(self) -> Result<Box<Shape>, Unasked> {
        let shape = self.shape.map(Box::new);
        shape.ok_or_else(|| Unasked::custom("a map or list that takes no entry"))
    }

    fn feed<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Unasked> {
        let mut seen = Seen::default();
        let value = seed.deserialize(Ask { seen: &mut seen })?;
        self.shape = seen.shape;
        Ok(value)
    }
}

impl<'de> MapAccess<'de> for &mut One {
    type Error = Unasked;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unasked> {
        if std::mem::replace(&mut self.key_given, true) {
            return Ok(None);
        }
        let mut key = Seen::default();
        seed.deserialize(Ask { seen: &mut key }).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unasked> {
        self.feed(seed)
    }
}

impl<'de> SeqAccess<'de> for &mut One {
    type Error = Unasked;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Unasked> {
        if self.shape.is_some() {
            return Ok(None);
        }
        self.feed(seed).map(Some)
    }
}

/// An enum's first variant.
struct First(&'static str);

impl<'de> EnumAccess<'de> for First {
    type Error = Unasked;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Unasked> {
        let name: StrDeserializer<'de, Unasked> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for First {
    type Error = Unasked;

    fn unit_variant(self) -> Result<(), Unasked> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Unasked> {
        Err(Unasked::custom("a variant with content"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Unasked> {
        Err(Unasked::custom("a variant with content"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Unasked> {
        Err(Unasked::custom("a variant with content"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use numaherd_topology::CpuSet;

    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its shape is looked at")]
    struct Outer {
        switch: bool,
        count: Option<u32>,
        share: f64,
        file: Option<PathBuf>,
        cpus: Option<CpuSet>,
        word: Word,
        figures: BTreeMap<String, f64>,
        inner: Inner,
        each: Vec<Inner>,
        names: Vec<String>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        OneWord,
        Other,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its shape is looked at")]
    struct Inner {
        deep: u64,
    }

    #[test]
    fn every_field_of_every_struct_is_found_with_what_it_holds() {
        let shape = shape_of::<Outer>();
        let keys: Vec<String> = shape
            .keys()
            .into_iter()
            .map(|(name, field)| {
                let optional = if field.optional { "?" } else { "" };
                format!("{name}{optional}: {}", field.shape.wanted())
            })
            .collect();
        assert_eq!(
            keys,
            [
                "switch: true or false",
                "count?: a whole number from 0 to 4294967295",
                "share: a number",
                "file?: text in quotes",
                "cpus?: text in quotes",
                "word: \"one-word\" or \"other\"",
                "figures: a table of names, each with a number",
                "names: a list in brackets, each text in quotes",
                "inner.deep: a whole number, 0 or more",
                "each.deep: a whole number, 0 or more",
            ]
        );
        let tables: Vec<String> = shape.tables().into_iter().map(|(name, _)| name).collect();
        assert_eq!(tables, ["", "inner", "each"]);
    }
}
