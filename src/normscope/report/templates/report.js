// A click on a column's head, or Enter, sorts its table; numbers as numbers, and what is missing comes last. Heads of
// numbers stand above them, at the right.
for (const table of document.querySelectorAll("table.sorted")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.classList.add("sortable");
    const numbers = [...table.tBodies[0].rows].some((row) => row.cells[column].classList.contains("number"));
    head.classList.toggle("number", numbers);
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = (a, b) => {
        const [one, other] = [value(a), value(b)];
        if (one === "" || other === "") return (one === "") - (other === "");
        const [x, y] = [Number(one), Number(other)];
        const order = Number.isNaN(x) || Number.isNaN(y) ? one.localeCompare(other) : x - y;
        return down ? -order : order;
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(compare));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort();
    });
  });
}
