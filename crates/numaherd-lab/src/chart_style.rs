//! What all charts look like: colours of ground and text, which follow the reader's light or dark scheme by
//! a style sheet within the file.

use plotters::style::RGBColor;

/// Behind everything; like the next two, what the style sheet changes for readers in the dark.
pub const GROUND: RGBColor = RGBColor(0xfe, 0xfe, 0xfe);
/// Text and axes.
pub const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Lines of the grid.
pub const FAINT: RGBColor = RGBColor(0xd8, 0xd8, 0xd8);
/// The style sheet, to stand right behind the file's first tag.
pub const STYLE: &str = "<style>text{font-family:system-ui,sans-serif}\
@media (prefers-color-scheme: dark){\
[fill=\"#FEFEFE\"]{fill:#16181c}\
[fill=\"#222222\"]{fill:#e4e4e4}\
[stroke=\"#222222\"]{stroke:#e4e4e4}\
[stroke=\"#D8D8D8\"]{stroke:#3a3d43}}</style>";
