// Tables are sorted by the column whose head is clicked; a second click turns the order round.
document.querySelectorAll("table.sortable th").forEach((head) => {
  head.addEventListener("click", () => {
    const table = head.closest("table"), body = table.tBodies[0];
    const column = [...head.parentNode.children].indexOf(head);
    const down = head.dataset.order !== "down";
    table.querySelectorAll("th").forEach((other) => delete other.dataset.order);
    head.dataset.order = down ? "down" : "up";
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const compare = (a, b) => (isNaN(key(a)) || isNaN(key(b)) ? key(a).localeCompare(key(b)) : key(b) - key(a));
    [...body.rows].sort((a, b) => (down ? 1 : -1) * compare(a, b)).forEach((row) => body.append(row));
  });
});
