// Bundles the front end into one ES module inside the Python package; with --check, only compares with what is there.
import { readFile, writeFile } from "node:fs/promises";
import { build, transform } from "esbuild";

const target = new URL("../src/normscope/explorer/static/explorer.js", import.meta.url);
const largest = 300_000;

/** Style sheets are texts of the bundle, without comments and spaces. */
const styles = {
  name: "styles",
  setup({ onLoad }) {
    onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { code } = await transform(await readFile(path, "utf8"), { loader: "css", minify: true, target: "es2022" });
      return { contents: code, loader: "text" };
    });
  },
};

const result = await build({
  entryPoints: [new URL("src/main.ts", import.meta.url).pathname],
  bundle: true,
  write: false,
  format: "esm",
  target: "es2022",
  charset: "ascii",
  minify: true,
  legalComments: "none",
  plugins: [styles],
  banner: {
    js: "// normscope explorer: built from front-end/ by `make front-end`. Do not edit. Contains d3 modules (ISC licence).",
  },
});
const text = result.outputFiles[0].text;
if (text.length > largest) {
  console.error(`The bundle has ${text.length} bytes, more than ${largest}.`);
  process.exit(1);
}
if (process.argv.includes("--check")) {
  const built = await readFile(target, "utf8").catch(() => "");
  if (built !== text) {
    console.error("The built front end does not match its sources: run `make front-end` and commit the result.");
    process.exit(1);
  }
  console.log("The built front end matches its sources.");
} else {
  await writeFile(target, text);
  console.log(`Built explorer.js: ${(text.length / 1024).toFixed(1)} KB`);
}
