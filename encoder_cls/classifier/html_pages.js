// Tables are sorted by the column whose head is pressed, by pointer or keyboard; pressed again, it reverses the order.
document.querySelectorAll("table.sortable thead th").forEach((head) => {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  head.addEventListener("click", () => {
    const table = head.closest("table"), body = table.tBodies[0];
    const column = [...head.parentNode.children].indexOf(head);
    const down = head.getAttribute("aria-sort") !== "descending";
    table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const compare = (a, b) => (isNaN(key(a)) || isNaN(key(b)) ? key(a).localeCompare(key(b)) : key(b) - key(a));
    [...body.rows].sort((a, b) => (down ? 1 : -1) * compare(a, b)).forEach((row) => body.append(row));
  });
});
// Shows the value of an attention map at the pointer: a byte for each cell, the square root of the weight.
document.querySelectorAll("svg[data-levels]").forEach((map) => {
  const image = map.querySelector("image"), box = document.createElement("div");
  const levels = atob(map.dataset.levels), side = Math.sqrt(levels.length);
  const names = [...document.querySelectorAll(map.querySelector("use").getAttribute("href") + " text.row")];
  box.id = "pointed";
  const show = (event) => {
    const area = image.getBoundingClientRect();
    const at = (value, start, size) => Math.max(0, Math.min(side - 1, Math.floor(((value - start) / size) * side)));
    const row = at(event.clientY, area.top, area.height), column = at(event.clientX, area.left, area.width);
    const weight = (levels.charCodeAt(row * side + column) / 255) ** 2;
    // Isolated, so that names from right to left do not turn the arrow round.
    const [from, to] = [row, column].map((at) => `\u2068${names[at].textContent}\u2069`);
    box.textContent = `${from} → ${to}: ${weight.toFixed(weight < 0.1 ? 3 : 2)}`;
    document.querySelector("main").append(box);
    box.style.left = Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 6) + "px";
    box.style.top = Math.max(6, event.clientY - box.offsetHeight - 10) + "px";
  };
  ["pointermove", "pointerdown"].forEach((kind) => image.addEventListener(kind, show));
  image.addEventListener("pointerleave", () => box.remove());
});
