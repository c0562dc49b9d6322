// The search of the site: names and first lines, in search.js, which is loaded when somebody types.
// search.js calls index([[page, title, [[anchor, first line], ...]], ...]).

const box = document.querySelector("nav input[type=search]");
const page = document.querySelector("main");
const found = document.createElement("main");
found.className = "pdoc page";
let entries = null;

function index(pages) {
  entries = pages.flatMap(([file, title, parts]) =>
    parts.map(([anchor, line]) => {
      const name = !anchor ? title : file.startsWith("docs/") ? `${title}: ${anchor}` : `${title}.${anchor}`;
      return { name, line, href: `${root}${file}${anchor ? `#${anchor}` : ""}`, low: name.toLowerCase() };
    }),
  );
  show();
}

function rank(entry, words) {
  const last = entry.low.split(".").at(-1);
  let sum = 0;
  for (const word of words) {
    if (last === word) sum += 8;
    else if (last.startsWith(word)) sum += 4;
    else if (entry.low.includes(word)) sum += 2;
    else if (entry.line.toLowerCase().includes(word)) sum += 1;
    else return 0;
  }
  return sum;
}

function show() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const isShown = found.isConnected;
  if (!words.length || !entries) {
    if (isShown) found.replaceWith(page);
    return;
  }
  const hits = entries.map((entry) => [rank(entry, words), entry]).filter(([weight]) => weight);
  hits.sort(([a, x], [b, y]) => b - a || x.name.length - y.name.length);
  const list = document.createElement("dl");
  for (const [, entry] of hits.slice(0, 60)) {
    const [term, link, line] = ["dt", "a", "dd"].map((name) => document.createElement(name));
    link.textContent = entry.name;
    link.href = entry.href;
    link.addEventListener("click", () => found.replaceWith(page));
    line.textContent = entry.line;
    term.append(link);
    list.append(term, line);
  }
  const head = document.createElement("h2");
  head.textContent = hits.length ? `${hits.length} found` : "Nothing has such a name";
  found.replaceChildren(head, list);
  if (!isShown) page.replaceWith(found);
}

box.addEventListener("input", () => {
  if (entries) return show();
  if (document.getElementById("index")) return;
  const script = document.createElement("script");
  script.id = "index";
  script.src = `${root}search.js`;
  document.head.append(script);
});
