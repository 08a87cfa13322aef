//! Tables of settings: one on top of another, and the `KEY=VALUE` of a command line.

use toml::{Table, Value};

use crate::FileError;

/// Puts `over` on top of `under`, key by key.
pub fn merge(under: &mut Table, over: &Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge(under, over),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

/// A setting of the command line, such as `policies.n_mass.threshold=40`, as tables. Its key begins with the
/// name of one of `tables`. A value that is not TOML is text.
///
/// # Errors
/// [`FileError::Set`]: the setting has no `=`, or its key is not that of a setting.
pub fn key_value(text: &str, tables: &[&str]) -> Result<Table, FileError> {
    let wrong = |why: &str| FileError::Set {
        text: text.to_owned(),
        why: why.to_owned(),
    };
    let (key, value) = text.split_once('=').ok_or_else(|| wrong("it has no ="))?;
    let key = key.trim();
    let read = |value: &str| toml::from_str::<Table>(&format!("{key} = {value}"));
    let setting = read(value)
        .or_else(|_| read(&Value::from(value.trim()).to_string()))
        .map_err(|_| wrong("its key cannot be read"))?;
    for (table, value) in &setting {
        if !tables.contains(&table.as_str()) {
            let tables: Vec<String> = tables.iter().map(|table| format!("{table}.")).collect();
            let known = crate::or(&tables);
            return Err(wrong(&format!(
                "a key begins with {known}, as in herd.limits.bounce_limit=3"
            )));
        }
        if !value.is_table() {
            return Err(wrong("its key ends too early"));
        }
    }
    Ok(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Table, String> {
        key_value(text, &["herd", "policies"]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_setting_is_a_table_on_top_of_others() {
        let mut tables = read("herd.limits.bounce_limit = 3").unwrap();
        merge(&mut tables, &read("herd.limits.scope=node").unwrap());
        merge(&mut tables, &read("herd.limits.bounce_limit=4").unwrap());
        let limits = &tables["herd"]["limits"];
        assert_eq!(limits["bounce_limit"], Value::Integer(4));
        assert_eq!(limits["scope"], Value::from("node"));
    }

    #[test]
    fn what_is_no_setting_is_refused_with_the_reason() {
        let refused = |text: &str| read(text).unwrap_err();
        assert_eq!(refused("herd"), "cannot set \"herd\": it has no =");
        assert!(refused("herd=1").ends_with("its key ends too early"));
        assert!(refused("=1").ends_with("its key cannot be read"));
        assert!(refused("herds.x=1").contains("a key begins with herd. or policies., as in"));
    }
}
