// Puts the page together: theme, totals by role, and what follows a change of either.

const themeButton = document.getElementById("theme");
const totals = document.querySelectorAll("#totals tbody tr");

function stored(value) {
  try {
    if (value) localStorage.setItem("clearstate-theme", value);
    return localStorage.getItem("clearstate-theme");
  } catch {
    return null; // a page in a frame or a private window may keep nothing
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  themeButton.textContent = `Theme: ${theme}`;
  repaint();
}

function repaint() {
  readPalette();
  maps.forEach((map) => map.draw());
  drawGraph();
}

// The maps were zoomed: the table follows where it was asked to.
function zoomed() {
  if (within.checked) list();
}

function choose(role) {
  only = only === role ? null : role;
  for (const row of totals) {
    const on = roles[only]?.[0] === row.dataset.role;
    row.classList.toggle("on", on);
    row.querySelector("button").setAttribute("aria-pressed", String(on));
  }
  document.getElementById("totals").classList.toggle("chosen", only !== null);
  maps.forEach((map) => map.draw());
  scroller.scrollTop = 0;
  list();
}

// One bar a side, at one scale: what each role is of the whole.
function drawBars() {
  const bars = document.getElementById("bars");
  bars.classList.toggle("two", two);
  const largest = Math.max(...sides.map((side) => side.size), 1);
  sides.forEach((side, n) => {
    const bar = document.createElement("div");
    bar.className = "bar";
    bar.style.width = `${(100 * side.size) / largest}%`;
    const shares = root.byRole(n);
    shares
      .map((bytes, role) => [bytes, role])
      .filter(([bytes]) => bytes)
      .sort(([a], [b]) => b - a)
      .forEach(([bytes, role]) => {
        const part = document.createElement("span");
        paintSwatch(part, role);
        part.style.flexGrow = bytes;
        part.title = `${roles[role][0]}, ${sizeText(bytes)}`;
        bar.append(part);
      });
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", `${two ? ["before", "after"][n] : "all"}: ${sizeText(side.size)}`);
    const name = document.createElement("span");
    name.textContent = n ? "After" : "Before";
    bars.append(...(two ? [name, bar] : [bar]));
  });
}

function startTotals() {
  drawBars();
  document.getElementById("hatched").hidden = !document.querySelector("#bars .hatched");
  for (const row of totals) {
    const role = roles.findIndex(([name]) => name === row.dataset.role);
    paintSwatch(row.querySelector(".swatch"), role);
    const name = row.querySelector("th");
    const button = document.createElement("button");
    button.type = "button";
    button.append(...name.childNodes);
    button.title = `Show only what is ${roles[role][0]}`;
    name.append(button);
    button.setAttribute("aria-pressed", "false");
    row.addEventListener("click", () => choose(role));
  }
}

readPalette();
startTotals();
startMaps();
startGraphs();
startTable();
startTree();

const chosenTheme = stored();
if (THEMES.includes(chosenTheme)) setTheme(chosenTheme);
themeButton.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || "automatic") + 1) % THEMES.length];
  stored(next);
  setTheme(next);
});
dark.addEventListener("change", repaint);

let resizing = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(() => {
    maps.forEach((map) => map.draw());
    drawGraph();
    drawLines();
    rows();
  });
});

document.addEventListener("keydown", (event) => {
  const writing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "Escape" && event.target === search) {
    search.value = "";
    list();
  }
});

let before = null;
addEventListener("beforeprint", () => {
  before = document.documentElement.dataset.theme || "automatic";
  setTheme("light");
  drawLines(true);
  rows(true);
});
addEventListener("afterprint", () => {
  setTheme(before);
  drawLines();
  rows();
});
