import java.io.BufferedReader;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.analysis.tokenattributes.CharTermAttribute;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.FieldType;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexOptions;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.BoostQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.similarities.BM25Similarity;
import org.apache.lucene.store.MMapDirectory;

/**
 * The peer of benchmarks/bm25.py: Lucene in its own process, one thread, memory-mapped.
 *
 * build CORPUS INDEX SEGMENTS     SEGMENTS: merge down to so many; 0 leaves what there is
 * search INDEX QUERIES OUT K FIELDS WARM     FIELDS: "text" or "text,title"
 *     writes a line a query: wall ms, this thread's CPU ms, hits as ID:SCORE
 *
 * A search is timed from the query's words to the stored passages in hand, as a user waits.
 */
public class LuceneBench {
  public static void main(String[] args) throws Exception {
    BooleanQuery.setMaxClauseCount(10_000);
    if (args[0].equals("build")) build(args[1], Paths.get(args[2]), Integer.parseInt(args[3]));
    else search(Paths.get(args[1]), args[2], args[3], Integer.parseInt(args[4]), args[5].split(","),
        Integer.parseInt(args[6]));
  }

  static void build(String corpus, Path folder, int segments) throws Exception {
    long began = System.nanoTime();
    IndexWriterConfig config = new IndexWriterConfig(new EnglishAnalyzer());
    config.setRAMBufferSizeMB(256);
    config.setSimilarity(new BM25Similarity());
    FieldType words = new FieldType();
    words.setIndexOptions(IndexOptions.DOCS_AND_FREQS);
    words.setStored(true);
    words.freeze();
    long count = 0;
    try (IndexWriter writer = new IndexWriter(new MMapDirectory(folder), config);
        BufferedReader lines = Files.newBufferedReader(Paths.get(corpus), StandardCharsets.UTF_8)) {
      for (String line; (line = lines.readLine()) != null; count++) {
        String[] columns = line.split("\t");
        Document document = new Document();
        document.add(new StringField("id", columns[0], Field.Store.YES));
        document.add(new Field("title", columns[1], words));
        document.add(new Field("text", columns[2], words));
        writer.addDocument(document);
      }
      writer.commit();
      System.out.printf("indexed %d %.3f%n", count, (System.nanoTime() - began) / 1e9);
      if (segments > 0) writer.forceMerge(segments);
      writer.commit();
    }
    System.out.printf("built %d %.3f%n", count, (System.nanoTime() - began) / 1e9);
  }

  static void search(Path folder, String queries, String out, int k, String[] fields, int warm)
      throws Exception {
    List<String> asked = Files.readAllLines(Paths.get(queries), StandardCharsets.UTF_8);
    Analyzer analyzer = new EnglishAnalyzer();
    long began = System.nanoTime();
    try (DirectoryReader reader = DirectoryReader.open(new MMapDirectory(folder));
        PrintWriter answers = new PrintWriter(out, "UTF-8")) {
      IndexSearcher searcher = new IndexSearcher(reader);
      searcher.setSimilarity(new BM25Similarity());
      one(searcher, analyzer, asked.get(0), k, fields);
      System.out.printf("opened %.3f%n", (System.nanoTime() - began) / 1e9);
      System.out.printf("segments %d%n", reader.leaves().size());
      for (int i = 0; i < warm; i++)
        one(searcher, analyzer, asked.get(i % asked.size()), k, fields);
      ThreadMXBean clock = ManagementFactory.getThreadMXBean();
      for (String query : asked) {
        long cpu = clock.getCurrentThreadCpuTime();
        long start = System.nanoTime();
        String[] found = one(searcher, analyzer, query, k, fields);
        long wall = System.nanoTime() - start;
        cpu = clock.getCurrentThreadCpuTime() - cpu;
        answers.printf("%.4f\t%.4f\t%s%n", wall / 1e6, cpu / 1e6, String.join(" ", found));
      }
    }
  }

  static String[] one(IndexSearcher searcher, Analyzer analyzer, String text, int k, String[] fields)
      throws Exception {
    Map<String, Integer> counts = new LinkedHashMap<>();
    try (TokenStream tokens = analyzer.tokenStream("text", text)) {
      CharTermAttribute term = tokens.addAttribute(CharTermAttribute.class);
      tokens.reset();
      while (tokens.incrementToken()) counts.merge(term.toString(), 1, Integer::sum);
      tokens.end();
    }
    BooleanQuery.Builder query = new BooleanQuery.Builder();
    for (String field : fields)
      counts.forEach((word, count) ->
          query.add(new BoostQuery(new TermQuery(new Term(field, word)), count),
              BooleanClause.Occur.SHOULD));
    ScoreDoc[] hits = searcher.search(query.build(), k).scoreDocs;
    String[] ids = new String[hits.length];
    long characters = 0;
    for (int i = 0; i < hits.length; i++) {
      Document document = searcher.doc(hits[i].doc);
      characters += document.get("title").length() + document.get("text").length();
      ids[i] = document.get("id") + ":" + hits[i].score;
    }
    if (characters < 0) throw new AssertionError("what was read must be used");
    return ids;
  }
}
