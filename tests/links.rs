//! Links in the documents lead somewhere: to a file or folder of the tree, and to a heading in it, or a
//! function of it (`file.rs#function`).

use std::fs;
use std::path::{Path, PathBuf};

use numaherd_tests::{files, root, shown};

/// A link as it stands in a page.
struct Link {
    line: usize,
    target: String,
}

/// The links of a page of Markdown (`[text](target)`, `<img src="target">`), code left out.
fn links(page: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let mut fenced = false;
    for (line, text) in (1..).zip(page.lines()) {
        if text.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let text = without_code(text);
        for (open, close) in [("](", ')'), ("src=\"", '"')] {
            let mut rest = text.as_str();
            while let Some((_, after)) = rest.split_once(open) {
                let Some((target, next)) = after.split_once(close) else {
                    break;
                };
                links.push(Link {
                    line,
                    target: target.to_owned(),
                });
                rest = next;
            }
        }
    }
    links
}

/// A line without what stands between backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// All pages. What is below `crates/` are parts that pages are made of.
fn pages() -> Vec<PathBuf> {
    let mut pages = files(".", &[".md"]);
    pages.retain(|page| !shown(page).starts_with("crates/"));
    pages
}

/// The name by which a heading is linked to, as GitHub makes it.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

/// The anchors of a page.
fn anchors(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut anchors: Vec<String> = Vec::new();
    for line in page.lines() {
        fenced ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let name = anchor(heading.trim());
        let before = anchors.iter().filter(|known| **known == name).count();
        anchors.push(if before == 0 {
            name
        } else {
            format!("{name}-{before}")
        });
    }
    anchors
}

/// What is wrong with a link of a page, if anything is.
fn broken(page: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.to_owned(),
        file => page.parent().expect("pages are in folders").join(file),
    };
    if !path.exists() {
        return Some("there is no such file".into());
    }
    if heading.is_empty() {
        return None;
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    if path.extension().is_some_and(|end| end == "rs") {
        let has = text.contains(&format!("fn {heading}("));
        return (!has).then(|| format!("there is no such function in {}", shown(&path)));
    }
    let found = anchors(&text).iter().any(|known| known == heading);
    (!found).then(|| format!("there is no such heading in {}", shown(&path)))
}

#[test]
fn every_link_leads_somewhere() {
    let mut mistakes = String::new();
    let mut seen = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("pages are UTF-8");
        for link in links(&text) {
            seen += 1;
            if let Some(why) = broken(&page, &link.target) {
                mistakes += &format!("{}:{}: {}: {why}\n", shown(&page), link.line, link.target);
            }
        }
    }
    assert!(mistakes.is_empty(), "{mistakes}");
    assert!(
        seen > 100,
        "only {seen} links were found: what reads them is broken"
    );
}

#[test]
fn every_document_is_linked_to() {
    let mut linked = Vec::new();
    for page in pages() {
        let folder = page.parent().expect("pages are in folders").to_owned();
        let text = fs::read_to_string(&page).expect("pages are UTF-8");
        for link in links(&text) {
            let file = link.target.split('#').next().unwrap_or_default();
            if let Ok(path) = folder.join(file).canonicalize()
                && !file.is_empty()
                && path != page.canonicalize().unwrap_or_default()
            {
                linked.push(path);
            }
        }
    }
    for page in files("docs", &[".md"]) {
        let path = page.canonicalize().expect("it was listed");
        assert!(linked.contains(&path), "nothing links to {}", shown(&page));
    }
}

#[test]
fn pages_that_the_program_names_are_there() {
    let mut seen = 0;
    for file in files("crates", &[".rs", ".md", ".toml"]) {
        let text = fs::read_to_string(&file).expect("sources are UTF-8");
        for (at, _) in text.match_indices("docs/") {
            let name = &text[at..];
            let end = name.find(|c: char| !c.is_alphanumeric() && !"/-_.".contains(c));
            let Some((page, _)) = name[..end.unwrap_or(name.len())].rsplit_once(".md") else {
                continue;
            };
            seen += 1;
            let page = format!("{page}.md");
            assert!(root().join(&page).exists(), "{} names {page}", shown(&file));
        }
    }
    assert!(
        seen > 20,
        "only {seen} pages were found: what reads them is broken"
    );
}

#[test]
fn passages_that_the_house_quotes_are_in_their_documents() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let house = fs::read_to_string(root().join("docs/house.md")).expect("it is there");
    let (_, passages) = house.split_once("## Five passages").expect("it has them");
    let rows = passages.lines().filter(|line| line.starts_with("| ["));
    let mut quoted = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [link, _, now] = cells[..] else {
            panic!("a document, a passage before and one after: {row}");
        };
        let page = &links(link)[0].target;
        let text = fs::read_to_string(root().join("docs").join(page)).expect("it is there");
        assert!(words(&text).contains(now), "{page} no longer says: {now}");
        quoted += 1;
    }
    assert_eq!(quoted, 5);
}

#[test]
fn links_are_read_and_held_against_the_tree() {
    let page =
        "# One\n\n[a](x.md), `[no](code)` and [`b`](README.md#see-it)\n```\n[no](block)\n```\n";
    let targets: Vec<String> = links(page).into_iter().map(|link| link.target).collect();
    assert_eq!(targets, ["x.md", "README.md#see-it"]);
    assert_eq!(
        anchors("# One `two`: three\n## A\n## A\n"),
        ["one-two-three", "a", "a-1"]
    );
    let readme = root().join("README.md");
    assert!(broken(&readme, "none.md").is_some());
    assert!(broken(&readme, "docs").is_none());
    assert!(broken(&readme, "#no-such-heading").is_some());
}
