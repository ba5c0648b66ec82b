// The page's colours as the charts need them: those of the style sheet, in the theme that is on.

const THEMES = ["automatic", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const still = matchMedia("(prefers-reduced-motion: reduce)");
const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);

function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

// Black or white, whichever reads better on a colour.
function ink(rgb) {
  const [r, g, b] = rgb.match(/[\d.]+/g).map((part) => {
    const value = part / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

let palette = {};

function readPalette() {
  palette = { roles: roles.map(([name]) => colour(`role-${name}`)), font: getComputedStyle(document.body).fontFamily };
  palette.inks = palette.roles.map(ink);
  for (const name of ["card", "text", "faint", "line", "level", "level2", "focus"]) palette[name] = colour(name);
}

function paintSwatch(element, role) {
  element.className = roles[role][2] ? "swatch hatched" : "swatch";
  element.style.backgroundColor = `var(--role-${roles[role][0]})`;
}

// Stripes over what clearing drops: a sign besides the colour. One object, since the charts draw each anew.
const STRIPES = {
  symbol: "rect",
  color: "rgba(255,255,255,.2)",
  dashArrayX: [1, 0],
  dashArrayY: [2, 7],
  rotation: -Math.PI / 4,
};
const stripes = (role) => (roles[role][2] ? STRIPES : undefined);
